#include "features.h"

#include <cmath>
#include <stdexcept>

namespace stopwise {

Monomials::Monomials(std::size_t context_dim, std::size_t width, std::vector<MonomialBlock> blocks)
    : context_dim_(context_dim), width_(width), blocks_(std::move(blocks)) {
    for (const MonomialBlock& block : blocks_) {
        bool fits = block.center.size() == context_dim && block.scale.size() == context_dim &&
                    block.factors.size() == block.monomials.size() &&
                    block.offset + block.monomials.size() <= width;
        for (const auto& monomial : block.monomials) {
            for (const std::size_t c : monomial) fits = fits && c < context_dim;
        }
        if (!fits) throw std::invalid_argument("a feature map does not fit its contexts");
    }
}

std::int64_t Monomials::fill(const double* x, double* out) const {
    for (std::size_t c = 0; c < context_dim_; ++c) {
        if (!std::isfinite(x[c])) return static_cast<std::int64_t>(c) + 1;
    }
    std::vector<double> z(context_dim_);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const MonomialBlock& block = blocks_[b];
        for (std::size_t c = 0; c < context_dim_; ++c) {
            z[c] = (x[c] - block.center[c]) / block.scale[c];
            if (std::fabs(z[c]) > block.limit) {
                return -1 - static_cast<std::int64_t>(b * context_dim_ + c);
            }
            if (std::fabs(z[c]) > block.bound) z[c] = std::copysign(block.bound, z[c]);
        }
        for (std::size_t k = 0; k < block.monomials.size(); ++k) {
            double product = block.factors[k];
            for (const std::size_t c : block.monomials[k]) product *= z[c];
            out[block.offset + k] = product;
        }
    }
    return 0;
}

}  // namespace stopwise
