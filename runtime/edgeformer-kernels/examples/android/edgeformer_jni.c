// What Kernels.kt calls: `sentence.h` by the names and types of the Java Native Interface.
#include <jni.h>
#include <stdlib.h>

#include "sentence.h"

static void throw_error(JNIEnv* env, const char* message) {
  (*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalArgumentException"), message);
}

JNIEXPORT jlong JNICALL Java_edgeformer_Kernels_open(JNIEnv* env, jclass type, jstring weights, jstring plan) {
  (void)type;
  char problem[200];
  const char* weights_path = (*env)->GetStringUTFChars(env, weights, NULL);
  const char* plan_path = (*env)->GetStringUTFChars(env, plan, NULL);
  sentence_model* model = NULL;
  if (weights_path && plan_path) {  // otherwise, an error of memory is pending
    model = sentence_open(weights_path, plan_path, problem, sizeof problem);
    if (!model) throw_error(env, problem);
  }
  if (weights_path) (*env)->ReleaseStringUTFChars(env, weights, weights_path);
  if (plan_path) (*env)->ReleaseStringUTFChars(env, plan, plan_path);
  return (jlong)(intptr_t)model;
}

JNIEXPORT void JNICALL Java_edgeformer_Kernels_close(JNIEnv* env, jclass type, jlong model) {
  (void)env, (void)type;
  sentence_close((sentence_model*)(intptr_t)model);
}

JNIEXPORT jlongArray JNICALL Java_edgeformer_Kernels_translate(JNIEnv* env, jclass type, jlong model, jlongArray source,
                                                               jlongArray begin, jlongArray suppressed, jlongArray forbidden,
                                                               jlongArray numbers, jdouble length_penalty, jdoubleArray score) {
  (void)type;
  const jlongArray given[] = {source, begin, suppressed, forbidden, numbers};
  jlong* value[5] = {NULL};
  jsize count[5];
  int is_complete = 1;
  for (int i = 0; i < 5; i++) {
    count[i] = (*env)->GetArrayLength(env, given[i]);
    is_complete = (value[i] = (*env)->GetLongArrayElements(env, given[i], NULL)) && is_complete;
  }
  jlongArray result = NULL;
  jlong* target = is_complete ? malloc((size_t)value[4][1] * sizeof *target) : NULL;
  if (target) {
    const sentence_rules rules = {
        .begin = (const int64_t*)value[1],
        .begin_count = count[1],
        .suppressed = (const int64_t*)value[2],
        .suppressed_count = count[2],
        .forbidden = (const int64_t*)value[3],
        .forbidden_count = count[3],
        .end = value[4][0],
        .most = value[4][1],
        .beams = value[4][2],
        .length_penalty = length_penalty,
        .shrinks = value[4][3] != 0,
        .stops_early = value[4][4] != 0,
        .counts_end = value[4][5] != 0,
    };
    double found_score = 0;
    const int64_t found = sentence_translate((const sentence_model*)(intptr_t)model, &rules, (const int64_t*)value[0],
                                             count[0], (int64_t*)target, &found_score);
    if (found >= 0 && (result = (*env)->NewLongArray(env, (jsize)found))) {
      (*env)->SetLongArrayRegion(env, result, 0, (jsize)found, target);
      (*env)->SetDoubleArrayRegion(env, score, 0, 1, &found_score);
    }
  }
  if (!result && !(*env)->ExceptionCheck(env)) throw_error(env, "The sentence cannot be translated.");
  free(target);
  for (int i = 0; i < 5; i++)
    if (value[i]) (*env)->ReleaseLongArrayElements(env, given[i], value[i], JNI_ABORT);
  return result;
}
