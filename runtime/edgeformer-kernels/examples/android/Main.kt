// Translates token ids as `examples/c/translate.c` does, to try Kernels.kt outside of an app, on any Java machine.
package edgeformer

import java.io.File

fun main(arguments: Array<String>) {
    val (weights, plan) = arguments
    val (beams, most, begin, end) = arguments.drop(2).map(String::toLong)
    val suppressed = arguments.drop(6).map(String::toLong).toLongArray()
    val rules = Rules(longArrayOf(begin), end, suppressed, most, beamSize = beams)
    Kernels(File(weights), File(plan)).use { kernels ->
        for (line in generateSequence(::readlnOrNull)) {
            val found = kernels.translate(line.split(" ").map(String::toLong).toLongArray(), rules)
            println("%.6f ".format(java.util.Locale.ROOT, found.score) + found.ids.joinToString(" "))
        }
    }
}
