// Feature maps Φ turn the context of a round into a row of features with norm at most one.
//
// Every built-in map is a list of monomials of a shifted and scaled input:
//
//     z = (x − center)/scale, clamped to [−bound, bound];   φₖ = factorₖ · Π z[c], c in monomialₖ
//
// Maps that differ between stages or pairs fill *slots* of the row. A slot may be left to the caller,
// whose own function computes it; then the caller gives complete rows in place of contexts.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "archive.h"

namespace stopwise {

// A coordinate beyond ``limit`` is refused (∞: never, clip instead); between ``bound`` and ``limit`` it
// is a rounding error and clamped.
struct MonomialMap {
    std::vector<std::vector<std::size_t>> monomials;  // coordinates multiplied; none: the constant
    double bound, limit;
    std::vector<double> factors, center, scale;
};

// A map that scales itself: (3, z₀, z₁, …, ½·z₀z₀, ½·z₀z₁, …), all times ``size``, with z in standard
// deviations from the mean, at most 3 either way. Degree 0 is the constant alone. Two-valued
// coordinates have no square: it would be an affine copy of them.
struct StandardMap {
    std::size_t degree = 1;
    std::vector<double> center, scale;  // of each coordinate; empty while it was not fitted
    std::vector<std::size_t> two_valued;
    std::optional<double> size;  // by default what makes the largest norm of all slots one
};

// The input of the maps: the context of a round and, where stages reveal it, how many arms have
// answered and which pairs of answers differ.
struct PartialContext {
    const double* context;
    std::size_t arms = 0;
    const unsigned char* differ = nullptr;
};

// Why a context is invalid: a coordinate of the input of a slot is not finite, or is out of bounds.
struct InvalidCoordinate {
    std::size_t slot, coordinate;
    bool finite;
};

class FeatureMaps {
public:
    struct Slot {
        std::size_t n_features;  // of a slot that the caller fills; else it is counted
        std::optional<MonomialMap> map;
        std::optional<StandardMap> standard;  // from which ``map`` is made
    };

    // Where stages reveal the context: how many numbers are known at each arm but the last, and whether
    // maps also see which answers agree.
    struct Stages {
        std::vector<std::size_t> dims;
        bool answers;
    };

    // ``slot_of_pair`` has the slot of each pair of arms, row by row; ``context_dim`` counts all numbers.
    // With ``stages`` there is a slot for each arm but the last, whose input is the numbers known there,
    // then for every two arms up to it whether they agree (0-1, 0-2, 1-2, 0-3, …). Throws
    // std::invalid_argument if a map does not fit its input.
    FeatureMaps(std::size_t n_arms, std::size_t context_dim, std::vector<Slot> slots,
                std::vector<std::size_t> slot_of_pair, std::optional<Stages> stages);

    // Write the row of features, with zeros for stages that did not run.
    std::optional<InvalidCoordinate> fill(const PartialContext& partial, double* row) const;
    // Write the features of a complete context but for those that the caller computes.
    std::optional<InvalidCoordinate> fill_own(const double* context, double* row) const;
    // What `fill` would return, without computing features.
    std::optional<InvalidCoordinate> find_invalid(const PartialContext& partial) const;

    // Whether stages reveal the context.
    bool revealed() const { return stages_.has_value(); }
    // Whether a policy fits these maps to its first rounds.
    bool self_scaling() const;
    // The maps fitted to ``inputs``: for each slot those that were seen, one after another. The degree is
    // 2, unless that makes too many features.
    FeatureMaps fitted(const std::vector<std::vector<double>>& inputs) const;

    // The input of a slot: how long it is, and what it is in a round.
    std::size_t input_dim(std::size_t slot) const;
    void input(std::size_t slot, const PartialContext& partial, double* out) const;

    std::size_t n_arms() const { return n_arms_; }
    std::size_t context_dim() const { return context_dim_; }
    // How many numbers of the context are known when so many arms have answered.
    std::size_t dim_after(std::size_t arms) const;
    std::size_t slots() const { return slots_.size(); }
    const Slot& slot(std::size_t slot) const { return slots_[slot]; }
    std::size_t slot_of_pair(std::size_t pair) const { return slot_of_pair_[pair]; }
    std::size_t offset(std::size_t slot) const { return offsets_[slot]; }
    // How many features come first that are no products: the constant and the coordinates.
    std::size_t linear(std::size_t slot) const;
    std::size_t width() const { return width_; }
    // Whether the engine computes all features; else the caller gives rows.
    bool complete() const { return complete_; }
    // What a round gives: numbers of the context, or of a row.
    std::size_t caller_dim() const { return complete_ ? context_dim_ : width_; }
    // The precision of the prior that `StandardMap` describes, if these maps are such.
    std::optional<double> prior_precision() const;

    // Save or restore what was fitted.
    void serialize(Archive& archive);

private:
    void arrange();
    std::optional<InvalidCoordinate> apply(std::size_t slot, const double* input, double* out) const;

    std::size_t n_arms_, context_dim_, width_ = 0;
    std::vector<Slot> slots_;
    std::vector<std::size_t> slot_of_pair_, offsets_;
    std::optional<Stages> stages_;
    bool complete_ = true;
};

}  // namespace stopwise
