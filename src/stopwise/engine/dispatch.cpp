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
    static const Kernels& selected = [] () -> const Kernels& {
        const char* requested = std::getenv("STOPWISE_INSTRUCTIONS");
        const bool force_baseline = requested != nullptr && std::strcmp(requested, "baseline") == 0;
        if (__builtin_cpu_supports("avx2") && !force_baseline) return avx2::table("avx2");
        return baseline::table("baseline");
    }();
#else
    static const Kernels& selected = baseline::table("baseline");
#endif
    return selected;
}

}  // namespace stopwise
