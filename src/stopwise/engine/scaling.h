// Fits `Standard` features to contexts.
#pragma once

#include <cstddef>
#include <vector>

namespace stopwise {

// The mean and standard deviation of each coordinate after clipping its extremes, and the
// coordinates with at most two values.
struct Scaling {
    std::vector<double> center, scale;
    std::vector<std::size_t> two_valued;
};

// Fit to n ≥ 1 contexts of ``dim`` finite coordinates, stored row by row. Bit-identical to numpy's
// quantile, clip and cumsum.
Scaling fit_scaling(const double* contexts, std::size_t n, std::size_t dim);

}  // namespace stopwise
