// Runs the kernels without Python: on other processors, in WebAssembly, and under sanitizers.
//
//   driver translate CASE               prints what every instruction set computes
//   driver mutate CASE SEED COUNT       opens and runs COUNT damaged models
//   driver misuse CASE SEED COUNT       makes COUNT calls with arguments of which some are wrong
//
// CASE is a file that `tests/kernels/cases.py` writes: whole numbers of 64 bits, the plan, and the weights.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#if defined(__unix__)
#include <unistd.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include "edgeformer_kernels.h"

namespace {

constexpr int64_t kRoom = 24;  // tokens of a hypothesis

// Memory of exactly some bytes at the beginning of a cache line.
struct Aligned {
  void* data = nullptr;
  explicit Aligned(size_t size) {
    if (posix_memalign(&data, 64, size ? size : 1)) std::abort();
  }
  Aligned(const Aligned&) = delete;
  ~Aligned() { std::free(data); }
};

struct Case {
  int64_t source_rows = 0, target_rows = 0, begin = 0, end = 0;
  std::vector<int64_t> suppressed, lengths, tokens;
  std::vector<double> plan;
  std::vector<char> weights;
};

template <class T>
void read(std::FILE* file, std::vector<T>& values, int64_t count) {
  values.resize(static_cast<size_t>(count));
  if (std::fread(values.data(), sizeof(T), values.size(), file) != values.size()) std::abort();
}

Case read_case(const char* path) {
  Case one;
  std::FILE* file = std::fopen(path, "rb");
  if (!file) std::abort();
  std::vector<int64_t> head;
  read(file, head, 9);
  one.source_rows = head[0], one.target_rows = head[1], one.begin = head[2], one.end = head[3];
  read(file, one.suppressed, head[4]);
  read(file, one.lengths, head[5]);
  read(file, one.tokens, head[6]);
  read(file, one.plan, head[7]);
  read(file, one.weights, head[8]);
  std::fclose(file);
  return one;
}

// FNV-1a, of everything that is computed.
struct Hash {
  uint64_t value = 14695981039346656037u;
  template <class T>
  void add(const T* data, int64_t count) {
    const auto* byte = reinterpret_cast<const unsigned char*>(data);
    for (size_t i = 0; i < static_cast<size_t>(count) * sizeof(T); i++) value = (value ^ byte[i]) * 1099511628211u;
  }
};

edgeformer_options options(const Case& one, int64_t beams, bool wants_scores, double penalty, const int64_t* suppressed, int64_t count) {
  edgeformer_options given = {};
  given.beams = beams;
  given.hypotheses = given.places = beams;
  given.shrinks = beams == 3;
  given.stops_early = beams == 1;
  given.wants_scores = wants_scores;
  given.length_penalty = penalty;
  given.end = one.end;
  given.suppressed = suppressed;
  given.suppressed_count = count;
  given.loop_repeats = beams % 2 ? 0 : 2;
  return given;
}

int search(edgeformer_batch* batch, const Case& one, const edgeformer_options& given, int64_t limit, Hash* hash, std::string* text) {
  const int64_t sentences = static_cast<int64_t>(one.lengths.size()), slots = sentences * given.hypotheses;
  const std::vector<int64_t> begin(sentences, one.begin), most(sentences, limit);
  const std::vector<double> initial(sentences, 0.0);
  std::vector<int64_t> token(slots * limit), count(slots);
  std::vector<double> each(slots * limit), score(slots);
  std::vector<uint8_t> finished(slots);
  const edgeformer_results results = {limit, token.data(), each.data(), count.data(), score.data(), finished.data()};
  const int outcome = edgeformer_search(batch, begin.data(), 1, most.data(), initial.data(), &given, nullptr, nullptr, nullptr, &results);
  hash->add(&outcome, 1);
  for (int64_t i = 0; i < slots && outcome == 1; i++) {
    hash->add(&count[i], 1);
    if (count[i] < 0) continue;
    hash->add(&token[i * limit], count[i]);
    hash->add(&score[i], 1);
    hash->add(&each[i * limit], count[i]);
    hash->add(&finished[i], 1);
    for (int64_t t = 0; text && t < count[i]; t++) *text += " " + std::to_string(token[i * limit + t]);
  }
  return outcome;
}

// All ways through the library. Returns whether it refused nothing.
bool run(const edgeformer_model* model, const Case& one, int64_t limit, Hash* hash, std::string* text) {
  const int64_t sentences = static_cast<int64_t>(one.lengths.size());
  const auto start = [&] { return edgeformer_start(model, one.tokens.data(), one.lengths.data(), sentences, nullptr, 0); };
  bool accepted = true;
  const struct { int64_t beams; bool scores; double penalty; } ways[] = {{1, false, 1}, {1, true, 0.6}, {3, true, 1}, {4, true, 0}, {2, true, 1.3}};
  for (const auto& way : ways) {
    edgeformer_batch* batch = start();
    if (!batch) return false;
    const edgeformer_options given =
        options(one, way.beams, way.scores, way.penalty, one.suppressed.data(), static_cast<int64_t>(one.suppressed.size()));
    accepted = search(batch, one, given, limit, hash, way.scores ? nullptr : text) == 1 && accepted;
    edgeformer_end(batch);
  }

  edgeformer_batch* batch = start();  // step by step, with rows that are doubled, reordered and left out
  if (!batch) return false;
  int64_t longest = 0;
  for (const int64_t length : one.lengths) longest = std::max(longest, length);
  std::vector<float> logits;
  std::vector<int64_t> rows(sentences);
  for (int64_t r = 0; r < sentences; r++) rows[r] = r;
  for (int64_t t = 0; t < limit; t++) {
    logits.assign(rows.size() * one.target_rows, 0);
    std::vector<int64_t> token(rows.size());
    for (size_t r = 0; r < rows.size(); r++) token[r] = (one.begin + t * (7 + static_cast<int64_t>(r))) % one.target_rows;
    const bool attends = t % 3 == 1;
    if (attends) logits.assign(rows.size() * longest, 0);
    const auto advance = attends ? edgeformer_attend : edgeformer_step;
    accepted = advance(batch, token.data(), logits.data(), static_cast<int64_t>(logits.size())) && accepted;
    hash->add(logits.data(), static_cast<int64_t>(logits.size()));
    const int64_t before = static_cast<int64_t>(rows.size());
    rows.clear();
    for (int64_t r = 0; r < before; r++)
      for (int64_t again = (r + t) % 3; again < 2 && rows.size() < 12; again++) rows.push_back(r);
    if (rows.empty()) rows.push_back(0);
    accepted = edgeformer_select(batch, rows.data(), static_cast<int64_t>(rows.size())) && accepted;
  }
  edgeformer_end(batch);

  batch = start();  // with listed tokens
  if (!batch) return false;
  std::vector<int64_t> listed;
  for (int64_t token = 0; token < one.target_rows; token++)
    if (token % 3 == 0 || token == one.end) listed.push_back(token);
  std::vector<uint8_t> usable(listed.size() * sentences);
  for (size_t i = 0; i < usable.size(); i++) usable[i] = i % 7 != 0;
  if (edgeformer_restrict(batch, listed.data(), static_cast<int64_t>(listed.size()), usable.data()))
    accepted = search(batch, one, options(one, 2, true, 1, nullptr, 0), limit, hash, nullptr) == 1 && accepted;
  else
    accepted = false;
  edgeformer_end(batch);
  return accepted;
}

edgeformer_model* open(const void* weights, int64_t size, const std::vector<double>& plan, const char* level, char* problem) {
  return edgeformer_open(weights, size, plan.data(), static_cast<int64_t>(plan.size()), level, problem, 200);
}

std::vector<std::string> levels() {
  std::vector<std::string> names(1);
  for (const char* c = edgeformer_levels(); *c; c++)
    if (*c == ' ')
      names.emplace_back();
    else
      names.back() += *c;
  return names;
}

int translate(const Case& one) {
  const Aligned weights(one.weights.size());
  std::memcpy(weights.data, one.weights.data(), one.weights.size());
  for (const std::string& level : levels()) {
    char problem[200] = "";
    edgeformer_model* model = open(weights.data, static_cast<int64_t>(one.weights.size()), one.plan, level.c_str(), problem);
    if (!model) return std::fprintf(stderr, "%s\n", problem), 1;
    Hash hash;
    std::string text;
    const bool accepted = run(model, one, kRoom, &hash, &text);
    edgeformer_batch* last = edgeformer_start(model, one.tokens.data(), one.lengths.data(), static_cast<int64_t>(one.lengths.size()), nullptr, 0);
    edgeformer_close(model);
    edgeformer_end(last);  // garbage collectors may close the model first
    std::printf("%s %016llx%s\n", level.c_str(), static_cast<unsigned long long>(hash.value), text.c_str());
    if (!accepted) return std::fprintf(stderr, "a call was refused\n"), 1;
  }
  return 0;
}

uint64_t state;  // SplitMix64
uint64_t random_bits() {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}
int64_t below(int64_t limit) { return static_cast<int64_t>(random_bits() % static_cast<uint64_t>(limit)); }

double hostile(const std::vector<double>& plan, double before, double size) {
  static const double values[] = {0, 1, -1, 2, 3, 15, 16, 17, 31, 32, 64, 127, 128, 254, 255, 256, 1023, 1024, 4096, 65535, 65536, 1 << 24, 2147483647.0,
                                  2147483648.0, 4294967296.0, 9007199254740992.0, 9.3e18, 1.9e19, 1e300, 1e-300, 1e-30, 1e30, 0.5, -0.0,
                                  std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN()};
  switch (below(7)) {
    case 0: return plan[below(static_cast<int64_t>(plan.size()))];
    case 1: return before + static_cast<double>(below(129) - 64);
    case 2: return before * 2;
    case 3: return size - static_cast<double>(below(4096));
    case 4: return static_cast<double>(below(static_cast<int64_t>(size))) / 4 * 4;
    default: return values[below(sizeof values / sizeof *values)];
  }
}

int64_t damaged;  // which model is running, for messages

void say_which() { std::fprintf(stderr, "model %lld\n", static_cast<long long>(damaged)); }

int mutate(const Case& one, uint64_t seed, int64_t count) {
  const std::vector<std::string> names = levels();
  int64_t opened = 0, ran = 0;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(say_which);
#endif
  for (damaged = 0; damaged < count; damaged++) {
    state = seed + static_cast<uint64_t>(damaged) * 0x632BE59BD9B4E019u;
#if defined(__unix__)
    alarm(60);  // ends a program that hangs
#endif
    std::vector<double> plan = one.plan;
    const size_t size = below(8) ? one.weights.size() : static_cast<size_t>(below(static_cast<int64_t>(one.weights.size()) + 1));
    for (int64_t changes = below(4); changes > 0; changes--) {
      double& number = plan[below(static_cast<int64_t>(plan.size()))];
      number = hostile(plan, number, static_cast<double>(one.weights.size()));
    }
    if (!below(16)) plan.resize(static_cast<size_t>(below(static_cast<int64_t>(plan.size()) + 8)));
    const Aligned weights(size);
    std::memcpy(weights.data, one.weights.data(), size);
    for (int64_t changes = below(3) ? 0 : below(64); size > 4 && changes > 0; changes--) {
      static const uint32_t patterns[] = {0, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0xFF7FFFFF, 1, 0x80000000, 0x7E967699, 0x80808080, 0x7F7F7F7F};
      const uint32_t pattern = below(2) ? static_cast<uint32_t>(random_bits()) : patterns[below(sizeof patterns / sizeof *patterns)];
      std::memcpy(static_cast<char*>(weights.data) + below(static_cast<int64_t>(size) / 4) * 4, &pattern, 4);
    }
    char problem[200] = "";
    edgeformer_model* model = open(weights.data, static_cast<int64_t>(size), plan, names[below(static_cast<int64_t>(names.size()))].c_str(), problem);
    if (!model && !*problem) return say_which(), std::fprintf(stderr, "refused without a reason\n"), 1;
    if (!model) continue;
    opened++;
    Hash hash;
    ran += run(model, one, 6, &hash, nullptr);
    edgeformer_close(model);
  }
  std::printf("%lld refused, %lld opened, of which %lld ran\n", static_cast<long long>(count - opened), static_cast<long long>(opened), static_cast<long long>(ran));
  return 0;
}

// A number that is right, or hardly wrong, or far from it.
int64_t doubtful(int64_t right) {
  static const int64_t values[] = {-1, 0, 1, 2, 63, 64, 65, 1 << 20, (1 << 20) + 1, INT64_MAX, INT64_MIN, int64_t(1) << 32, int64_t(1) << 61};
  if (below(6)) return right;
  return below(2) && right > -100000 && right < 100000 ? right + below(5) - 2 : values[below(sizeof values / sizeof *values)];
}

// As many tokens as are counted, where that can be.
std::vector<int64_t> tokens(int64_t count, int64_t limit, bool is_ascending) {
  std::vector<int64_t> values(static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(count, 1 << 20))));
  for (size_t i = 0; i < values.size(); i++) values[i] = doubtful(is_ascending ? static_cast<int64_t>(i) * 2 : below(limit));
  return values;
}

int misuse(const Case& one, uint64_t seed, int64_t count) {
  const Aligned weights(one.weights.size());
  std::memcpy(weights.data, one.weights.data(), one.weights.size());
  char problem[64] = "";
  edgeformer_model* model = open(weights.data, static_cast<int64_t>(one.weights.size()), one.plan, nullptr, problem);
  if (!model) return std::fprintf(stderr, "%s\n", problem), 1;
  state = seed;
  edgeformer_batch* batch = nullptr;
  int64_t sentences = 0, rows = 0, done[6] = {}, refused[6] = {};
  for (int64_t call = 0; call < count; call++) {
    if (!batch) {
      sentences = doubtful(1 + below(3));
      std::vector<int64_t> lengths(static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(sentences, 1 << 20))));
      int64_t total = 0;
      for (int64_t& length : lengths) total += std::max<int64_t>(0, std::min<int64_t>(length = doubtful(1 + below(9)), 1 << 10));
      batch = edgeformer_start(model, tokens(total, one.source_rows, false).data(), lengths.data(), sentences, problem, doubtful(64) % 65);
      rows = sentences;
      batch ? done[0]++ : refused[0]++;
      continue;
    }
    const int64_t kind = 1 + below(5);
    bool accepted = false;
    const std::vector<int64_t> token = tokens(rows, one.target_rows, false);
    if (kind == 1 || kind == 2) {
      const int64_t room = doubtful(rows * (kind == 1 ? one.target_rows : 9));
      std::vector<float> numbers(static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(room, 1 << 20))));
      if (room > 1 << 20) continue;  // room that is not there
      accepted = (kind == 1 ? edgeformer_step : edgeformer_attend)(batch, token.data(), numbers.data(), room);
    } else if (kind == 3) {
      const int64_t next = doubtful(1 + below(6));
      if (edgeformer_select(batch, tokens(next, rows, false).data(), next)) accepted = true, rows = next;
    } else if (kind == 4) {
      const int64_t listed = doubtful(1 + below(one.target_rows / 2));
      const std::vector<uint8_t> usable(static_cast<size_t>(sentences * std::max<int64_t>(0, std::min<int64_t>(listed, 1 << 10))), 1);
      accepted = edgeformer_restrict(batch, tokens(listed, one.target_rows, true).data(), listed, usable.data());
    } else {
      edgeformer_options given = options(one, doubtful(1 + below(4)), below(2), below(9) ? 1.0 : HUGE_VAL, nullptr, doubtful(below(4)));
      const std::vector<int64_t> suppressed = tokens(given.suppressed_count, 0, true);
      given.suppressed = suppressed.data();
      given.places = doubtful(given.places), given.hypotheses = doubtful(given.hypotheses);
      given.given_length = doubtful(0), given.loop_repeats = doubtful(0), given.loop_given = doubtful(0), given.end = doubtful(one.end);
      const int64_t begin_count = doubtful(1 + below(3)), room = doubtful(6);
      if (room > 64 || given.hypotheses > 64) continue;  // room that is not there
      const std::vector<int64_t> begin = tokens(rows * std::max<int64_t>(0, std::min<int64_t>(begin_count, 1 << 10)), one.target_rows, false);
      std::vector<int64_t> most(static_cast<size_t>(rows)), written(static_cast<size_t>(rows * 64 * 64)), counts(static_cast<size_t>(rows * 64));
      for (int64_t& each : most) each = doubtful(1 + below(6));
      const std::vector<double> initial(static_cast<size_t>(rows), below(9) ? 0.0 : -HUGE_VAL);
      std::vector<double> logs(written.size()), scores(counts.size());
      std::vector<uint8_t> finished(counts.size());
      const edgeformer_results results = {room, written.data(), logs.data(), counts.data(), scores.data(), finished.data()};
      accepted = edgeformer_search(batch, begin.data(), begin_count, most.data(), initial.data(), &given, nullptr, nullptr, nullptr, &results);
    }
    accepted ? done[kind]++ : refused[kind]++;
    if (!accepted && kind != 5 && !*edgeformer_problem(batch)) return std::fprintf(stderr, "refused without a reason\n"), 1;
    if (!below(4)) edgeformer_end(batch), batch = nullptr;
  }
  edgeformer_end(batch);
  edgeformer_close(model);
  for (int kind = 0; kind < 6; kind++) std::printf("%lld done, %lld refused\n", static_cast<long long>(done[kind]), static_cast<long long>(refused[kind]));
  return 0;
}

}  // namespace

int main(int count, char** argument) {
  if (count < 3) return 2;
  const Case one = read_case(argument[2]);
  if (!std::strcmp(argument[1], "translate")) return translate(one);
  if (count < 5) return 2;
  if (!std::strcmp(argument[1], "misuse")) return misuse(one, std::strtoull(argument[3], nullptr, 10), std::atoll(argument[4]));
  return mutate(one, std::strtoull(argument[3], nullptr, 10), std::atoll(argument[4]));
}
