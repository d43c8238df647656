// Selects the kernels at load time by the instruction set of the processor.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace stopwise {

namespace baseline {
const Kernels& table(const char* name);
}
namespace avx2 {
const Kernels& table(const char* name);
}

const Kernels& kernels() {
#if STOPWISE_HAS_AVX2 && defined(__GNUC__)
    static const Kernels& chosen = [] () -> const Kernels& {
        const char* wish = std::getenv("STOPWISE_INSTRUCTIONS");
        const bool plain = wish != nullptr && std::strcmp(wish, "baseline") == 0;
        if (__builtin_cpu_supports("avx2") && !plain) return avx2::table("avx2");
        return baseline::table("baseline");
    }();
#else
    static const Kernels& chosen = baseline::table("baseline");
#endif
    return chosen;
}

}  // namespace stopwise
