#include "features.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace stopwise {

Monomials::Monomials(std::size_t context_dim, std::size_t width, std::vector<MonomialBlock> blocks)
    : context_dim_(context_dim), width_(width), blocks_(std::move(blocks)) {
    for (const MonomialBlock& block : blocks_) {
        std::size_t degree = 1;
        bool fits = block.center.size() == context_dim && block.scale.size() == context_dim &&
                    block.offset + block.monomials.size() <= width;
        for (const auto& monomial : block.monomials) {
            degree = std::max(degree, monomial.size());
            for (const std::size_t c : monomial) fits = fits && c < context_dim;
        }
        if (!fits) throw std::invalid_argument("a feature map does not fit its contexts");
        std::vector<std::size_t> index;
        for (const auto& monomial : block.monomials) {
            index.insert(index.end(), monomial.begin(), monomial.end());
            index.insert(index.end(), degree - monomial.size(), context_dim);
        }
        degrees_.push_back(degree);
        indices_.push_back(std::move(index));
    }
}

std::int64_t Monomials::fill(const double* x, double* out) const {
    constexpr std::size_t kSmall = 64;  // contexts up to here need no memory of their own
    double small[kSmall + 1];
    std::vector<double> large;
    double* z = small;
    if (context_dim_ > kSmall) {
        large.resize(context_dim_ + 1);
        z = large.data();
    }
    for (std::size_t c = 0; c < context_dim_; ++c) {
        if (!std::isfinite(x[c])) return static_cast<std::int64_t>(c) + 1;
    }
    z[context_dim_] = 1.0;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
        const MonomialBlock& block = blocks_[b];
        for (std::size_t c = 0; c < context_dim_; ++c) {
            double value = (x[c] - block.center[c]) / block.scale[c];
            if (std::fabs(value) > block.bound) {
                if (std::fabs(value) > block.limit) {
                    return -1 - static_cast<std::int64_t>(b * context_dim_ + c);
                }
                value = std::copysign(block.bound, value);
            }
            z[c] = value;
        }
        const std::size_t* index = indices_[b].data();
        double* features = out + block.offset;
        // Degrees one and two are nearly all there is in practice.
        for (std::size_t k = 0; k < block.monomials.size(); ++k) {
            double product = block.factor;
            if (degrees_[b] == 1) {
                product *= z[index[k]];
            } else if (degrees_[b] == 2) {
                product = product * z[index[2 * k]] * z[index[2 * k + 1]];
            } else {
                for (std::size_t m = 0; m < degrees_[b]; ++m) {
                    product *= z[index[degrees_[b] * k + m]];
                }
            }
            features[k] = product;
        }
    }
    return 0;
}

}  // namespace stopwise
