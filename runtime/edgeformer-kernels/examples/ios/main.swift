// Translates token ids as `examples/c/translate.c` does, to try Kernels.swift outside of an app, on any system with Swift.
import Foundation

let arguments = CommandLine.arguments.dropFirst()
let files = arguments.prefix(2).map { URL(fileURLWithPath: $0) }
let numbers = arguments.dropFirst(2).map { Int64($0)! }
var rules = Rules(begin: [numbers[2]], end: numbers[3], suppress: Array(numbers[4...]), most: numbers[1])
rules.beamSize = numbers[0]
do {
  let kernels = try Kernels(weights: files[0], plan: files[1])
  while let line = readLine() {
    let found = try kernels.translate(line.split(separator: " ").map { Int64($0)! }, rules: rules)
    print(String(format: "%.6f", found.score), found.ids.map(String.init).joined(separator: " "))
  }
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
