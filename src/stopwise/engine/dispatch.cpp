// Chooses between the kernels that were compiled, once, by what the processor can do.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace stopwise {

namespace baseline {
const Kernels& table(const char* name);
}
#if STOPWISE_HAS_AVX2
namespace avx2 {
const Kernels& table(const char* name);
}
#endif

namespace {

const Kernels& choose() {
#if STOPWISE_HAS_AVX2
    const char* wish = std::getenv("STOPWISE_INSTRUCTIONS");
    const bool plain = wish != nullptr && std::strcmp(wish, "baseline") == 0;
#if defined(__GNUC__)
    const bool able = __builtin_cpu_supports("avx2");
#else
    const bool able = false;
#endif
    if (able && !plain) return avx2::table("avx2");
#endif
    return baseline::table("baseline");
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace stopwise
