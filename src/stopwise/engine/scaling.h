// How `Standard` features scale themselves to the contexts that a policy has seen.
#pragma once

#include <cstddef>
#include <vector>

namespace stopwise {

// Mean and standard deviation of each coordinate, without its extremes, and the coordinates that have
// at most two values.
struct Scaling {
    std::vector<double> center, scale;
    std::vector<std::size_t> two_valued;
};

// Fit to n contexts of ``dim`` finite numbers, one after another, n ≥ 1. The same bits as numpy's
// quantile, clip and cumsum.
Scaling fit_scaling(const double* contexts, std::size_t n, std::size_t dim);

}  // namespace stopwise
