package edgeformer

import java.io.File

/**
 * What the manifest of a bundle says of a search; see `special` and `generation` of the bundle format.
 *
 * @property begin `bos`, then `prefix`.
 * @property most Tokens of a translation, the end token included: `max_target_length` less those of `prefix`.
 */
data class Rules(
    val begin: LongArray,
    val end: Long,
    val suppress: LongArray,
    val most: Long,
    val forbid: LongArray = longArrayOf(),
    val beamSize: Long = 4,
    val lengthPenalty: Double = 1.0,
    val beamShrinks: Boolean = false,
    val earlyStopping: Boolean = true,
    val lengthIncludesEnd: Boolean = true,
)

/** Token ids of a translation, without the end token, and its score. */
class Found(val ids: LongArray, val score: Double)

/**
 * A model that is opened from a bundle's weights and the numbers of its plan. It may be used by several threads at a time
 * until it is closed.
 *
 * @throws IllegalArgumentException a file cannot be read, or the plan is damaged.
 */
class Kernels(weights: File, plan: File) : AutoCloseable {
    private var model = open(weights.path, plan.path)

    /**
     * Translates source ids, the end token included.
     *
     * @throws IllegalArgumentException a token is out of range, or there is not enough memory.
     */
    fun translate(source: LongArray, rules: Rules): Found {
        check(model != 0L) { "The model is closed." }
        val flags = listOf(rules.beamShrinks, rules.earlyStopping, rules.lengthIncludesEnd).map { if (it) 1L else 0L }
        val numbers = longArrayOf(rules.end, rules.most, rules.beamSize, *flags.toLongArray())
        val score = DoubleArray(1)
        val begin = rules.begin
        val ids = translate(model, source, begin, rules.suppress.sortedArray(), rules.forbid.sortedArray(), numbers, rules.lengthPenalty, score)
        return Found(ids, score[0])
    }

    override fun close() {
        close(model)
        model = 0L
    }

    private companion object {
        init {
            System.loadLibrary("edgeformer_kernels")
        }

        @JvmStatic external fun open(weights: String, plan: String): Long

        @JvmStatic external fun close(model: Long)

        @JvmStatic external fun translate(
            model: Long,
            source: LongArray,
            begin: LongArray,
            suppressed: LongArray,
            forbidden: LongArray,
            numbers: LongArray,
            lengthPenalty: Double,
            score: DoubleArray,
        ): LongArray
    }
}
