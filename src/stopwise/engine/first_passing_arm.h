// Selection of the first arm that passes the stopping test, or the last arm.
#pragma once

#include <cstddef>

namespace stopwise {

template <class Passes>
std::size_t first_passing_arm(std::size_t n_arms, const Passes& passes) {
    std::size_t i = 0;
    while (i + 1 < n_arms && !passes(i)) ++i;
    return i;
}

}  // namespace stopwise
