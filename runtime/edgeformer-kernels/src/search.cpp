// Greedy and beam search over the logits of a batch, to the end of every sentence. With K beams, N sentences and a
// vocabulary of V tokens, one step is:
//
//   STEP 1  Advance the decoder by the last token of each hypothesis: the best 2K tokens of each row, of which at least
//           K do not end. In the first step, all hypotheses of a sentence are alike, so it has one row.
//   STEP 2  Merge them to the best 2K extensions of each sentence, by log-probability.
//   STEP 3  If the beam shrinks (Marian), keep K minus the number of finished hypotheses.
//   STEP 4  An end token among the best K finishes a hypothesis; the best K others go on.
//   STEP 5  A hypothesis of maximum length, or one that repeats itself, fills a free place unfinished.
//   STEP 6  A sentence is complete if nothing goes on or it has all its hypotheses: K times patience, rounded. Without
//           early stopping, it goes on while one that goes on scores higher than the worst of these (Transformers).
//   STEP 7  Select the rows of the hypotheses that go on.
//
// Greedy search is the same with K = 1, one token per row, and one hypothesis. search/search.py of the runtime has the
// same rules for engines that return logits; tests compare both.
#include "model.h"

#include <algorithm>
#include <cmath>

#include "vectors.h"

namespace edgeformer {
namespace {

// The most tokens that may repeat in a loop.
constexpr int64_t kLongestLoop = 8;

// A hypothesis that may go on, or one of its extensions.
struct Candidate {
  double log_probability;
  int64_t token;
  int32_t parent;  // row of the step before
};

// Rows after each step: enough to trace a hypothesis back to its beginning.
class Trail {
 public:
  bool reserve(int64_t rows, int64_t steps) {
    rows_ = rows;
    return entries_.reserve(rows * steps);
  }
  Candidate& at(int64_t step, int64_t row) { return entries_[step * rows_ + row]; }

 private:
  int64_t rows_ = 0;
  Array<Candidate> entries_;
};

class Search {
 public:
  Search(State* state, const int64_t* begin, int64_t begin_count, const int64_t* most, const double* initial,
         const edgeformer_options& options, const int64_t* listed, void (*begun)(), int (*stopped)(int64_t),
         void (*ended)(int64_t), const edgeformer_results& results)
      : state_(state), begin_(begin), begin_count_(begin_count), most_(most), initial_(initial), options_(options), listed_(listed),
        begun_(begun), stopped_(stopped), ended_(ended), results_(results), sentences_(state->rows) {}

  bool reserve() {
    const int64_t rows = sentences_ * options_.beams;
    best_.count = options_.beams == 1 ? 1 : 2 * options_.beams;
    best_.suppressed = options_.suppressed;
    best_.suppressed_count = options_.suppressed_count;
    best_.forbidden = options_.forbidden;
    best_.forbidden_count = options_.forbidden_count;
    if (!values_.reserve(rows * best_.count) || !outputs_.reserve(rows * best_.count) || !log_sums_.reserve(rows) ||
        !token_.reserve(rows) || !rows_.reserve(rows) || !live_.reserve(rows) || !next_.reserve(rows) ||
        !pool_.reserve(2 * options_.beams + 1) || !origin_.reserve(sentences_) || !found_.zeros(sentences_) ||
        !trail_.reserve(rows, results_.room) || !recent_.reserve(begin_count_ + results_.room))
      return false;
    best_.value = values_.data();
    best_.output = outputs_.data();
    best_.log_sum = options_.wants_scores || options_.beams > 1 ? log_sums_.data() : nullptr;
    for (int64_t n = 0; n < sentences_; n++) {
      origin_[n] = n;
      live_[n] = {initial_[n], 0, static_cast<int32_t>(n)};
    }
    for (int64_t i = 0; i < sentences_ * options_.hypotheses; i++) results_.count[i] = -1;
    return true;
  }

  // Feeds what every target begins with, all of it but the last token.
  bool begin() {
    for (int64_t t = 0; t < begin_count_; t++) {
      for (int64_t n = 0; n < sentences_; n++) token_[n] = begin_[n * begin_count_ + t];
      if (t + 1 < begin_count_ && !advance(state_, token_.data(), {})) return false;
    }
    return true;
  }

  Outcome run() {
    while (state_->rows) {
      // STEP 1: the most probable tokens of each row.
      if (!advance(state_, token_.data(), {nullptr, &best_, nullptr})) return Outcome::kFailed;
      if (!step_ && begun_) begun_();
      int64_t kept = 0, rows = 0;
      const int64_t count = state_->rows / width_;
      for (int64_t s = 0; s < count; s++) {
        // STEPS 2 to 6: how each sentence goes on, and whether it does.
        if (!std::isfinite(extend(s))) return Outcome::kNotFinite;
        collect_ended(s);
        if (!goes_on(s)) {
          if (ended_) ended_(origin_[s]);
          continue;
        }
        for (int64_t b = 0; b < options_.beams; b++, rows++) {
          next_[rows] = pool_[b];
          rows_[rows] = pool_[b].parent;
        }
        origin_[kept++] = origin_[s];
      }
      // STEP 7: rows and tokens of the next step; nothing moves if each row continues itself.
      for (int64_t r = 0; r < rows; r++) {
        token_[r] = next_[r].token;
        trail_.at(step_, r) = live_[r] = next_[r];
      }
      step_++;
      width_ = options_.beams;
      if (!rows) break;
      if (!stays(rows) && !select(state_, rows_.data(), rows)) return Outcome::kFailed;
    }
    return Outcome::kDone;
  }

 private:
  bool stays(int64_t rows) const {
    for (int64_t r = 0; r < rows; r++)
      if (rows_[r] != r) return false;
    return rows == state_->rows;
  }

  // STEP 2: fills the pool with the most probable extensions of a sentence's hypotheses, best first; of equal ones,
  // those of the first hypothesis, then the first token. Returns the best log-probability.
  double extend(int64_t s) {
    int64_t filled = 0;
    for (int64_t row = s * width_; row < (s + 1) * width_; row++)
      for (int64_t i = 0; i < best_.count; i++) {
        const float logit = best_.value[row * best_.count + i];
        double value = live_[row].log_probability;
        if (best_.log_sum) value += static_cast<double>(logit - log_sums_[row]);
        if (!std::isfinite(logit)) value = -INFINITY;
        int64_t place = filled < best_.count ? filled++ : best_.count;
        for (; place > 0 && value > pool_[place - 1].log_probability; place--)
          if (place < best_.count) pool_[place] = pool_[place - 1];
        if (place == best_.count) continue;
        const int64_t output = best_.output[row * best_.count + i];
        pool_[place] = {value, state_->is_restricted ? listed_[output] : output, static_cast<int32_t>(row)};
      }
    for (; filled < std::max(best_.count, options_.beams); filled++) pool_[filled] = {-INFINITY, 0, static_cast<int32_t>(s * width_)};
    return pool_[0].log_probability;
  }

  // STEPS 3 and 4: collects the hypotheses that end, and moves extensions that go on to the front, in their order.
  void collect_ended(int64_t s) {
    // STEP 3: a finished hypothesis takes one of the places of those that go on.
    const int64_t count = best_.count, room = options_.beams - found_[origin_[s]];
    for (int64_t i = 0; i < count && options_.shrinks; i++)
      if (i >= room) pool_[i].log_probability = -INFINITY;
    // STEP 4: end tokens. After a prefix, one counts only if it is the best extension (CTranslate2): the prefix adds to
    // the length by which scores are divided, but not to the log-probability, so that an improbable end would look
    // good. Any other takes the place of an extension, and is dropped.
    const bool only_best = options_.follows_prefix && !step_;
    int64_t going = 0;
    for (int64_t i = 0; i < count; i++) {
      const Candidate candidate = pool_[i];
      if (candidate.token != options_.end || (only_best && i)) {
        pool_[going] = candidate;
        if (candidate.token == options_.end) pool_[going].log_probability = -INFINITY;
        going++;
        continue;
      }
      if (i < options_.beams && std::isfinite(candidate.log_probability)) collect(s, candidate, true);
    }
    for (; going < count; going++) pool_[going].log_probability = -INFINITY;
  }

  // STEPS 5 and 6: collects what may not become longer. Returns whether the sentence goes on.
  bool goes_on(int64_t s) {
    // STEP 5: the length limit, and loops.
    const int64_t n = origin_[s], length = step_ + 1;
    for (int64_t b = 0; b < options_.beams; b++) {
      if (!std::isfinite(pool_[b].log_probability) || (length < most_[n] && !is_loop(n, pool_[b]))) continue;
      collect(s, pool_[b], false);
      pool_[b].log_probability = -INFINITY;
    }
    // STEP 6: whether what goes on can still change the result, and whether the caller wants it.
    double highest = -INFINITY;
    for (int64_t b = 0; b < options_.beams; b++) highest = std::max(highest, pool_[b].log_probability);
    if (highest == -INFINITY) return false;
    if (found_[n] >= options_.places) {
      if (options_.stops_early) return false;
      const double worst = results_.score[n * options_.hypotheses + options_.places - 1];
      if (!(normalized(highest, options_.given_length + length) > worst)) return false;
    }
    if (!stopped_ || !stopped_(n)) return true;
    for (int64_t i = 0; i < options_.hypotheses; i++) results_.count[n * options_.hypotheses + i] = -1;
    return false;
  }

  // Whether a hypothesis ends with the same n tokens `loop_repeats` times in a row, for any n: then each of its last
  // tokens, the first of the n apart, is equal to the one n places before. Tokens are looked up from the last one back,
  // as far as needed; most hypotheses need the last nine.
  bool is_loop(int64_t n, const Candidate& last) {
    const int64_t repeats = options_.loop_repeats, length = options_.loop_given + step_ + 1;
    if (!repeats) return false;
    int64_t known = 0;
    Candidate traced = last;
    const auto token = [&](int64_t back) {
      for (; known <= back; known++) {
        if (known > step_) {
          recent_[known] = begin_[(n + 1) * begin_count_ - (known - step_)];
          continue;
        }
        if (known) traced = trail_.at(step_ - known, traced.parent);
        recent_[known] = traced.token;
      }
      return recent_[back];
    };
    for (int64_t size = 1; size <= std::min(kLongestLoop, length / repeats); size++) {
      int64_t equal = 0;
      while (equal < size * (repeats - 1) && token(equal) == token(equal + size)) equal++;
      if (equal == size * (repeats - 1)) return true;
    }
    return false;
  }

  double normalized(double log_probability, int64_t length) const {
    return log_probability / power(static_cast<double>(std::max<int64_t>(length, 1)), options_.length_penalty);
  }

  // Inserts a hypothesis into the results of its sentence, which are in the order of their scores.
  void collect(int64_t s, const Candidate& last, bool finished) {
    const int64_t n = origin_[s], most = options_.hypotheses;
    if (options_.stops_early && found_[n] >= options_.places) return;
    const int64_t length = step_ + 1;  // with the last token, which may be the end
    const int64_t counted = options_.given_length + length - (finished && !options_.counts_end);
    const double score = normalized(last.log_probability, counted);
    int64_t place = std::min(found_[n]++, most);
    while (place > 0 && score > results_.score[n * most + place - 1]) place--;
    if (place == most) return;
    for (int64_t i = std::min(found_[n], most) - 1; i > place; i--) move(n * most + i - 1, n * most + i);
    const int64_t at = n * most + place;
    results_.score[at] = score;
    results_.finished[at] = finished;
    results_.count[at] = length;
    Candidate traced = last;
    for (int64_t t = step_; t >= 0; t--) {
      const double before = t ? trail_.at(t - 1, traced.parent).log_probability : initial_[n];
      results_.token[at * results_.room + t] = traced.token;
      results_.token_log_probability[at * results_.room + t] = traced.log_probability - before;
      if (t) traced = trail_.at(t - 1, traced.parent);
    }
  }

  void move(int64_t from, int64_t to) {
    results_.score[to] = results_.score[from];
    results_.finished[to] = results_.finished[from];
    results_.count[to] = results_.count[from];
    const size_t bytes = results_.room * 8;
    std::memcpy(results_.token + to * results_.room, results_.token + from * results_.room, bytes);
    std::memcpy(results_.token_log_probability + to * results_.room, results_.token_log_probability + from * results_.room, bytes);
  }

  State* state_;
  const int64_t* begin_;
  const int64_t begin_count_;
  const int64_t* most_;
  const double* initial_;
  const edgeformer_options& options_;
  const int64_t* listed_;
  void (*begun_)();
  int (*stopped_)(int64_t);
  void (*ended_)(int64_t);
  const edgeformer_results& results_;
  const int64_t sentences_;
  int64_t width_ = 1, step_ = 0;  // rows of a sentence: all hypotheses begin alike, so that the first step has one
  Best best_;
  Array<float> values_, log_sums_;
  Array<int64_t> outputs_, token_, rows_, origin_, found_, recent_;
  Array<Candidate> live_, next_, pool_;
  Trail trail_;
};

}  // namespace

Outcome search(State* state, const int64_t* begin, int64_t begin_count, const int64_t* most, const double* initial,
               const edgeformer_options& options, const int64_t* listed, void (*begun)(), int (*stopped)(int64_t),
               void (*ended)(int64_t), const edgeformer_results& results) {
  Search running(state, begin, begin_count, most, initial, options, listed, begun, stopped, ended, results);
  if (!running.reserve() || !running.begin()) return Outcome::kFailed;
  return running.run();
}

}  // namespace edgeformer
