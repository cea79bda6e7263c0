// Translates token ids: translate WEIGHTS PLAN BEAMS MOST BEGIN END [SUPPRESSED ...]
//
// Reads the source ids of a sentence from each line of standard input, the end token included, and writes a line with the
// score and the ids of its translation. At the end, standard error gets the peak memory of the process.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "sentence.h"

enum { kMostTokens = 4096, kMostSuppressed = 64 };

int main(int count, char** argument) {
  int64_t suppressed[kMostSuppressed], source[kMostTokens];
  char line[8 * kMostTokens], problem[200];
  if (count < 7 || count - 7 > kMostSuppressed) return fputs("translate WEIGHTS PLAN BEAMS MOST BEGIN END [SUPPRESSED ...]\n", stderr), 2;
  sentence_model* model = sentence_open(argument[1], argument[2], problem, sizeof problem);
  if (!model) return fprintf(stderr, "The model cannot be opened: %s.\n", problem), 1;
  const int64_t begin = atoll(argument[5]);
  for (int i = 7; i < count; i++) suppressed[i - 7] = atoll(argument[i]);
  const sentence_rules rules = {
      .begin = &begin,
      .begin_count = 1,
      .suppressed = suppressed,
      .suppressed_count = count - 7,
      .end = atoll(argument[6]),
      .most = atoll(argument[4]),
      .beams = atoll(argument[3]),
      .length_penalty = 1,  // these are the defaults of `generation`
      .shrinks = 0,
      .stops_early = 1,
      .counts_end = 1,
  };
  int64_t* target = malloc((size_t)rules.most * sizeof *target);
  int failed = !target;
  while (!failed && fgets(line, sizeof line, stdin)) {
    int64_t tokens = 0;
    for (char* word = strtok(line, " \n"); word && tokens < kMostTokens; word = strtok(NULL, " \n")) source[tokens++] = atoll(word);
    double score = 0;
    const int64_t found = sentence_translate(model, &rules, source, tokens, target, &score);
    failed = found < 0;
    if (failed) break;
    printf("%.6f", score);
    for (int64_t i = 0; i < found; i++) printf(" %lld", (long long)target[i]);
    puts("");
  }
  if (failed) fputs("A sentence cannot be translated.\n", stderr);
  free(target);
  sentence_close(model);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fprintf(stderr, "%ld kB\n", usage.ru_maxrss);  // bytes on Apple's systems
  return failed;
}
