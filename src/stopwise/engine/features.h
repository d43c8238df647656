// Feature maps Φ: from the context of a round to a row of features with norm at most one.
//
// Every built-in map is a list of monomials of a shifted and scaled input:
//
//     z = (x − center)/scale, clamped to [−bound, bound];   φₖ = factorₖ · Π z[c], c in monomialₖ
//
// Each distinct map has a *slot* of the row. Slots of custom maps are computed by the caller, which
// then passes complete rows in place of contexts.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "archive.h"

namespace stopwise {

// A coordinate beyond ``limit`` is invalid (∞ to clip instead); a coordinate between ``bound`` and
// ``limit`` is a rounding error and clamped.
struct MonomialMap {
    std::vector<std::vector<std::size_t>> monomials;  // lists of coordinates; empty: the constant
    double bound, limit;
    std::vector<double> factors, center, scale;
};

// A self-scaling map: size·(3, z₀, z₁, …, ½·z₀z₀, ½·z₀z₁, …), with z standardised and clipped to
// [−3, 3]. Degree 0 is the constant alone. Two-valued coordinates have no square, which would be an
// affine function of the coordinate.
struct StandardMap {
    std::size_t degree = 1;
    std::vector<double> center, scale;  // of each coordinate; empty before the first fit
    std::vector<std::size_t> two_valued;
    std::optional<double> size;  // by default such that the largest norm of all slots is one
};

// The input of the maps: the context of a round and, where stages reveal it, the number of arms
// that have answered and which pairs of answers differ.
struct PartialContext {
    const double* context;
    std::size_t arms = 0;
    const unsigned char* differ = nullptr;
};

// The first invalid coordinate of a slot's input: not finite or out of bounds.
struct InvalidCoordinate {
    std::size_t slot, coordinate;
    bool finite;
};

class FeatureMaps {
public:
    struct Slot {
        std::size_t n_features;  // passed for custom maps; otherwise computed
        std::optional<MonomialMap> map;
        std::optional<StandardMap> standard;  // the source of ``map``
    };

    // Where stages reveal the context: the number of coordinates available at each arm except the
    // last, and whether maps also read which answers agree.
    struct Stages {
        std::vector<std::size_t> dims;
        bool answers;
    };

    // ``slot_of_pair`` has the slot of each pair of arms, row by row; ``context_dim`` includes
    // revealed coordinates. With ``stages`` there is a slot for each arm except the last. Its input
    // is the coordinates available there, then for each pair of arms up to it whether they agree
    // (0-1, 0-2, 1-2, 0-3, …). Throws std::invalid_argument if a map does not match its input.
    FeatureMaps(std::size_t n_arms, std::size_t context_dim, std::vector<Slot> slots,
                std::vector<std::size_t> slot_of_pair, std::optional<Stages> stages);

    // Write the row of features, with zeros for stages that did not run.
    std::optional<InvalidCoordinate> fill(const PartialContext& partial, double* row) const;
    // Write the features of a complete context, except those that the caller computes.
    std::optional<InvalidCoordinate> fill_native(const double* context, double* row) const;
    // The result of `fill` without computing features.
    std::optional<InvalidCoordinate> find_invalid(const PartialContext& partial) const;

    // Whether stages reveal the context.
    bool revealed() const { return stages_.has_value(); }
    // Whether a policy fits these maps to its first rounds.
    bool self_scaling() const;
    // The maps fitted to ``inputs``, which has the inputs of each slot row by row. The degree is 2
    // unless that gives too many features.
    FeatureMaps fitted(const std::vector<std::vector<double>>& inputs) const;

    // The length of a slot's input, and its values in a round.
    std::size_t input_dim(std::size_t slot) const;
    void input(std::size_t slot, const PartialContext& partial, double* out) const;

    std::size_t n_arms() const { return n_arms_; }
    std::size_t context_dim() const { return context_dim_; }
    // The number of coordinates available after ``arms`` arms have answered.
    std::size_t dim_after(std::size_t arms) const;
    std::size_t slots() const { return slots_.size(); }
    const Slot& slot(std::size_t slot) const { return slots_[slot]; }
    std::size_t slot_of_pair(std::size_t pair) const { return slot_of_pair_[pair]; }
    std::size_t offset(std::size_t slot) const { return offsets_[slot]; }
    // The number of leading features that are not products: the constant and the coordinates.
    std::size_t linear(std::size_t slot) const;
    std::size_t width() const { return width_; }
    // Whether the engine computes all features; otherwise the caller passes rows.
    bool complete() const { return complete_; }
    // The length of the caller's input for a complete context: a context or a row.
    std::size_t caller_dim() const { return complete_ ? context_dim_ : width_; }
    // The precision of the prior for `StandardMap`; none for other maps.
    std::optional<double> prior_precision() const;

    // Save or restore the fitted maps.
    void serialize(Archive& archive);

private:
    void arrange();
    std::optional<InvalidCoordinate> apply(std::size_t slot, const double* input,
                                           double* out) const;

    std::size_t n_arms_, context_dim_, width_ = 0;
    std::vector<Slot> slots_;
    std::vector<std::size_t> slot_of_pair_, offsets_;
    std::optional<Stages> stages_;
    bool complete_ = true;
};

}  // namespace stopwise
