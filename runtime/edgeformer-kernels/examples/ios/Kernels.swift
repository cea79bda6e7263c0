import EdgeformerSentence
import Foundation

/// What the manifest of a bundle says of a search; see `special` and `generation` of the bundle format.
public struct Rules {
  /// `bos`, then `prefix`.
  public var begin: [Int64]
  public var end: Int64
  public var suppress: [Int64]
  public var forbid: [Int64] = []
  /// Tokens of a translation, the end token included: `max_target_length` less those of `prefix`.
  public var most: Int64
  public var beamSize: Int64 = 4
  public var lengthPenalty = 1.0
  public var beamShrinks = false
  public var earlyStopping = true
  public var lengthIncludesEnd = true

  public init(begin: [Int64], end: Int64, suppress: [Int64], most: Int64) {
    (self.begin, self.end, self.suppress, self.most) = (begin, end, suppress, most)
  }
}

public enum KernelsError: Error {
  /// A file cannot be read, or the plan is damaged; the text says which.
  case cannotOpen(String)
  /// A token is out of range, or there is not enough memory.
  case cannotTranslate
}

/// A model that is opened from a bundle's weights and the numbers of its plan. It may be used by several threads at a time.
public final class Kernels {
  private let model: OpaquePointer

  public init(weights: URL, plan: URL) throws {
    var problem = [CChar](repeating: 0, count: 200)
    guard let opened = sentence_open(weights.path, plan.path, &problem, problem.count) else {
      throw KernelsError.cannotOpen(String(cString: problem))
    }
    model = opened
  }

  deinit { sentence_close(model) }

  /// Translates source ids, the end token included, to ids without the end token, and their score.
  public func translate(_ source: [Int64], rules: Rules) throws -> (ids: [Int64], score: Double) {
    let suppress = rules.suppress.sorted(), forbid = rules.forbid.sorted()
    var target = [Int64](repeating: 0, count: Int(rules.most)), score = 0.0
    let found = rules.begin.withUnsafeBufferPointer { begin in
      suppress.withUnsafeBufferPointer { suppressed in
        forbid.withUnsafeBufferPointer { forbidden in
          var given = sentence_rules(
            begin: begin.baseAddress, begin_count: Int64(begin.count),
            suppressed: suppressed.baseAddress, suppressed_count: Int64(suppressed.count),
            forbidden: forbidden.baseAddress, forbidden_count: Int64(forbidden.count),
            end: rules.end, most: rules.most, beams: rules.beamSize, length_penalty: rules.lengthPenalty,
            shrinks: rules.beamShrinks ? 1 : 0, stops_early: rules.earlyStopping ? 1 : 0,
            counts_end: rules.lengthIncludesEnd ? 1 : 0)
          return sentence_translate(model, &given, source, Int64(source.count), &target, &score)
        }
      }
    }
    guard found >= 0 else { throw KernelsError.cannotTranslate }
    return (Array(target.prefix(Int(found))), score)
  }
}
