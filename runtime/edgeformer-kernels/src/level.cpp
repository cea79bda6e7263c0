// The kernels of one instruction set; compiled once for each, with EDGEFORMER_LEVEL as its name.
#include "network.h"

namespace edgeformer {
namespace EDGEFORMER_LEVEL {
extern const Kernels kernels;
#define EDGEFORMER_TEXT(name) #name
#define EDGEFORMER_NAME(name) EDGEFORMER_TEXT(name)
const Kernels kernels = {EDGEFORMER_NAME(EDGEFORMER_LEVEL), kGroup, kShift, encode, step};
}  // namespace EDGEFORMER_LEVEL
}  // namespace edgeformer
