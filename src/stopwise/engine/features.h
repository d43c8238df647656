// The loop behind every built-in feature map: monomials of a shifted and scaled context.
//
//     z = (x − center)/scale, clamped to [−bound, bound];   φₖ = factorₖ · Π z[index[k, :]]
#pragma once

#include <cstdint>
#include <cstddef>
#include <vector>

namespace stopwise {

// One map. A coordinate beyond ``limit`` is refused (∞: never, clip instead); between ``bound`` and
// ``limit`` it is a rounding error and clamped.
struct MonomialBlock {
    std::size_t offset;  // where its features begin in the row
    std::vector<std::vector<std::size_t>> monomials;  // coordinates multiplied; none: the constant
    double bound, limit;
    std::vector<double> factors, center, scale;
};

class Monomials {
public:
    // Throws std::invalid_argument if a block does not fit a context of that size.
    Monomials(std::size_t context_dim, std::size_t width, std::vector<MonomialBlock> blocks);

    // Write the features of one context. Returns 0; c + 1 when coordinate c is not finite;
    // −1 − (block·context_dim + c) when it is beyond the limit of a block.
    std::int64_t fill(const double* x, double* out) const;

    std::size_t context_dim() const { return context_dim_; }
    std::size_t width() const { return width_; }

private:
    std::size_t context_dim_, width_;
    std::vector<MonomialBlock> blocks_;
};

}  // namespace stopwise
