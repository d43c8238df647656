#include "features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "link.h"
#include "scaling.h"

namespace stopwise {

namespace {

constexpr double kStandardBound = 3.0;
constexpr double kWeights[3] = {3.0, 1.0, 0.5};  // weight of a monomial of `StandardMap` by degree
// The count for ten coordinates. Heuristic: more features take more rounds to learn than they save.
constexpr std::size_t kMaxMonomials = 66;
constexpr double kMinScale = 1e-300;
constexpr double kMaxDouble = std::numeric_limits<double>::max();
constexpr double kMaxNorm = 1.0 + 1e-9;  // maximum norm of features, with a margin for rounding

std::vector<std::vector<std::size_t>> monomials_of(const StandardMap& map, std::size_t dim) {
    std::vector<std::vector<std::size_t>> monomials{{}};
    for (std::size_t c = 0; map.degree >= 1 && c < dim; ++c) monomials.push_back({c});
    for (std::size_t a = 0; map.degree >= 2 && a < dim; ++a) {
        for (std::size_t b = a; b < dim; ++b) {
            const auto& two = map.two_valued;
            const bool square_of_two = a == b && std::find(two.begin(), two.end(), a) != two.end();
            if (!square_of_two) monomials.push_back({a, b});
        }
    }
    return monomials;
}

// The largest possible norm of the features before multiplication by ``size``.
double largest_norm(const StandardMap& map, std::size_t dim) {
    double squares = 0.0;
    for (const auto& monomial : monomials_of(map, dim)) {
        double largest = kWeights[monomial.size()];
        for (std::size_t k = 0; k < monomial.size(); ++k) largest *= kStandardBound;
        squares += largest * largest;
    }
    return std::sqrt(squares);
}

MonomialMap monomial_map(const StandardMap& map, std::size_t dim) {
    MonomialMap result{monomials_of(map, dim), kStandardBound, kInfinity, {}, map.center,
                       map.scale};
    for (const auto& monomial : result.monomials) {
        result.factors.push_back(*map.size * kWeights[monomial.size()]);
    }
    if (result.center.empty()) result.center.assign(dim, 0.0);
    if (result.scale.empty()) result.scale.assign(dim, 1.0);
    return result;
}

bool matches(const MonomialMap& map, std::size_t dim) {
    bool matches = map.center.size() == dim && map.scale.size() == dim &&
                   map.factors.size() == map.monomials.size();
    for (const auto& monomial : map.monomials) {
        for (const std::size_t c : monomial) matches = matches && c < dim;
    }
    return matches;
}

}  // namespace

FeatureMaps::FeatureMaps(std::size_t n_arms, std::size_t context_dim, std::vector<Slot> slots,
                         std::vector<std::size_t> slot_of_pair,
                         std::optional<Stages> stages)
    : n_arms_(n_arms), context_dim_(context_dim), slots_(std::move(slots)),
      slot_of_pair_(std::move(slot_of_pair)), stages_(std::move(stages)) {
    bool is_valid = n_arms >= 2 && slot_of_pair_.size() == n_arms * (n_arms - 1) / 2;
    for (const std::size_t slot : slot_of_pair_) is_valid = is_valid && slot < slots_.size();
    if (stages_) {
        is_valid = is_valid && stages_->dims.size() == n_arms - 1 && slots_.size() == n_arms - 1;
        for (const std::size_t dim : stages_->dims) is_valid = is_valid && dim <= context_dim;
    }
    if (!is_valid) throw std::invalid_argument("the feature slots do not match the cascade");
    arrange();
}

// Create the monomials of `StandardMap` slots, and compute the offsets of all slots.
void FeatureMaps::arrange() {
    double largest = 0.0;  // shared by all slots, because they have the same prior
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s].standard) {
            largest = std::max(largest, largest_norm(*slots_[s].standard, input_dim(s)));
        }
    }
    offsets_.clear();
    width_ = 0;
    complete_ = true;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        Slot& slot = slots_[s];
        if (slot.standard) {
            double& size = slot.standard->size ? *slot.standard->size
                                               : slot.standard->size.emplace(1.0 / largest);
            if (!(size > 0.0 && size * largest <= kMaxNorm)) {
                std::ostringstream message;
                message << "size must be at most " << 1.0 / largest
                        << " so that the norm of the features does not exceed one, got " << size;
                throw std::invalid_argument(message.str());
            }
            slot.map = monomial_map(*slot.standard, input_dim(s));
        }
        if (slot.map) {
            if (!matches(*slot.map, input_dim(s))) {
                throw std::invalid_argument("a feature map does not match its context_dim");
            }
            slot.n_features = slot.map->monomials.size();
        }
        complete_ = complete_ && slot.map.has_value();
        offsets_.push_back(width_);
        width_ += slot.n_features;
    }
}

std::size_t FeatureMaps::input_dim(std::size_t slot) const {
    if (!stages_) return context_dim_;
    return stages_->dims[slot] + (stages_->answers ? slot * (slot + 1) / 2 : 0);
}

void FeatureMaps::input(std::size_t slot, const PartialContext& partial, double* out) const {
    out = std::copy_n(partial.context, stages_ ? stages_->dims[slot] : context_dim_, out);
    if (!stages_ || !stages_->answers) return;
    for (std::size_t b = 1; b <= slot; ++b) {
        for (std::size_t a = 0; a < b; ++a) {
            const std::size_t pair = a * (2 * n_arms_ - a - 1) / 2 + b - a - 1;
            *out++ = partial.differ[pair] != 0 ? 0.0 : 1.0;
        }
    }
}

std::optional<InvalidCoordinate> FeatureMaps::fill(const PartialContext& partial,
                                                   double* row) const {
    if (!complete_) {
        std::copy_n(partial.context, width_, row);
        return std::nullopt;
    }
    if (!stages_) return fill_native(partial.context, row);
    std::fill_n(row, width_, 0.0);
    std::vector<double> input;
    for (std::size_t s = 0; s < std::min(partial.arms, slots_.size()); ++s) {
        input.resize(input_dim(s));
        this->input(s, partial, input.data());
        if (const auto invalid = apply(s, input.data(), row + offsets_[s])) return invalid;
    }
    return std::nullopt;
}

std::optional<InvalidCoordinate> FeatureMaps::fill_native(const double* context,
                                                          double* row) const {
    for (std::size_t c = 0; !complete_ && c < context_dim_; ++c) {
        if (!std::isfinite(context[c])) return InvalidCoordinate{0, c, false};
    }
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (!slots_[s].map) continue;
        if (const auto invalid = apply(s, context, row + offsets_[s])) return invalid;
    }
    return std::nullopt;
}

std::optional<InvalidCoordinate> FeatureMaps::find_invalid(const PartialContext& partial) const {
    const std::size_t stages = stages_ ? std::min(partial.arms, slots_.size()) : slots_.size();
    std::vector<double> input;
    for (std::size_t s = 0; complete_ && s < stages; ++s) {
        input.resize(input_dim(s));
        this->input(s, partial, input.data());
        for (std::size_t c = 0; c < input.size(); ++c) {
            if (!std::isfinite(input[c])) return InvalidCoordinate{s, c, false};
        }
        const MonomialMap& map = *slots_[s].map;
        for (std::size_t c = 0; map.limit < kInfinity && c < input.size(); ++c) {
            const double z = (input[c] - map.center[c]) / map.scale[c];
            if (std::fabs(z) > map.limit) return InvalidCoordinate{s, c, true};
        }
    }
    return std::nullopt;
}

std::optional<InvalidCoordinate> FeatureMaps::apply(std::size_t slot, const double* input,
                                                    double* out) const {
    const MonomialMap& map = *slots_[slot].map;
    const std::size_t dim = map.center.size();
    for (std::size_t c = 0; c < dim; ++c) {
        if (!std::isfinite(input[c])) return InvalidCoordinate{slot, c, false};
    }
    double stack_buffer[64];
    std::vector<double> heap_buffer;
    double* z = stack_buffer;
    if (dim > 64) {
        heap_buffer.resize(dim);
        z = heap_buffer.data();
    }
    for (std::size_t c = 0; c < dim; ++c) {
        z[c] = (input[c] - map.center[c]) / map.scale[c];
        if (std::fabs(z[c]) > map.limit) return InvalidCoordinate{slot, c, true};
        if (std::fabs(z[c]) > map.bound) z[c] = std::copysign(map.bound, z[c]);
    }
    for (std::size_t k = 0; k < map.monomials.size(); ++k) {
        double product = map.factors[k];
        for (const std::size_t c : map.monomials[k]) product *= z[c];
        out[k] = product;
    }
    return std::nullopt;
}

bool FeatureMaps::self_scaling() const {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.standard.has_value(); });
}

FeatureMaps FeatureMaps::fitted(const std::vector<std::vector<double>>& inputs) const {
    std::size_t widest = 0;
    for (std::size_t s = 0; s < slots_.size(); ++s) widest = std::max(widest, input_dim(s));
    const std::size_t n_monomials = (widest + 2) * (widest + 1) / 2;
    FeatureMaps fitted = *this;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (!slots_[s].standard) continue;
        StandardMap& map = *fitted.slots_[s].standard;
        map.degree = n_monomials <= kMaxMonomials ? 2 : 1;
        map.size.reset();
        const std::size_t dim = input_dim(s);
        if (inputs[s].empty()) continue;  // keeps its previous scale
        const Scaling scaling = fit_scaling(inputs[s].data(), inputs[s].size() / dim, dim);
        map.center = scaling.center;
        map.scale = scaling.scale;
        map.two_valued = scaling.two_valued;
    }
    fitted.arrange();
    return fitted;
}

std::size_t FeatureMaps::dim_after(std::size_t arms) const {
    if (!stages_) return context_dim_;
    return arms == 0 ? 0 : stages_->dims[std::min(arms, stages_->dims.size()) - 1];
}

std::size_t FeatureMaps::linear(std::size_t slot) const {
    const Slot& map_slot = slots_[slot];
    if (!map_slot.map) return map_slot.n_features;
    return static_cast<std::size_t>(
        std::count_if(map_slot.map->monomials.begin(), map_slot.map->monomials.end(),
                      [](const auto& monomial) { return monomial.size() <= 1; }));
}

std::optional<double> FeatureMaps::prior_precision() const {
    if (slots_.empty() || !slots_[0].standard) return std::nullopt;
    const double size = *slots_[0].standard->size;
    return size * size;
}

void FeatureMaps::serialize(Archive& archive) {
    if (!self_scaling()) return;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        StandardMap& map = *slots_[s].standard;
        const std::size_t dim = input_dim(s);
        archive.count(map.degree, 2, "degree");
        std::size_t n = map.center.size();
        archive.count(n, static_cast<std::int64_t>(dim), "number of coordinates");
        archive.check(n == 0 || n == dim, "number of coordinates");
        std::size_t n_two_valued = map.two_valued.size();
        archive.count(n_two_valued, static_cast<std::int64_t>(dim), "number of coordinates");
        if (archive.reading()) {
            map.center.resize(n);
            map.scale.resize(n);
            map.two_valued.resize(n_two_valued);
        }
        archive.between(map.center.data(), n, -kMaxDouble, kMaxDouble, "center");
        archive.between(map.scale.data(), n, kMinScale, kMaxDouble, "scale");
        for (std::size_t& c : map.two_valued) {
            archive.count(c, static_cast<std::int64_t>(dim) - 1, "coordinate");
        }
        const double max_size = kMaxNorm / largest_norm(map, dim);
        archive.between(&*map.size, 1, kMinScale, max_size, "feature size");
        archive.check(*map.size == *slots_[0].standard->size, "feature size");
    }
    if (archive.reading()) arrange();
}

}  // namespace stopwise
