// Values of one context for the rules and the stopping test: logits, errors, norms and gains.
#pragma once

#include <vector>

#include "comparison.h"
#include "estimates.h"
#include "pair_gains.h"

namespace stopwise {

// Buffers of `ContextValues` and of the stopping test, reused for the next context.
struct Workspace {
    struct Norm {  // ‖φ‖_{H⁻¹} and the revision of its estimates
        double value = 0.0;
        std::size_t revision = 0;
    };
    explicit Workspace(const Config& config);
    // Only `beaten_by` persists between contexts: it affects which estimates are refined first.
    void serialize(Archive& archive);

    std::vector<Numbers> phi;            // the padded features of each V
    std::vector<double> norms;           // ‖φ‖_{V⁻¹} for each V, < 0 until computed
    std::vector<double> bonuses;         // for each V, < 0 until computed
    std::vector<Norm> hessian_norms;     // for each question
    std::vector<Gain::Upper> gains;      // for each pair, NaN until computed
    std::vector<int> refinements;        // passes over the history for each pair's comparison
    std::vector<Outcome> outcomes;       // of the stopping test, for each pair
    std::vector<std::size_t> beaten_by;  // for each arm, the deeper arm that last won against it
    Numbers scratch;
};

class ContextValues {
public:
    // ``row`` has the features; ``noise`` has a value for each pair or is empty. If ``exact``, the
    // ``models`` are solved copies; otherwise they belong to the estimates and may be refined.
    ContextValues(Estimates& estimates, const std::vector<Model>& models, bool exact,
                  const PairGains& gains, const Config& config, Workspace& workspace,
                  const double* row, std::vector<double> noise);

    std::size_t pair(std::size_t i, std::size_t j) const { return config_.pair(i, j); }
    std::size_t last_arm() const { return config_.last(); }

    // φᵀθ̃, an approximation of the exact logit φᵀθ̂.
    double logit(std::size_t question) const;
    // A proved bound on |φᵀ(θ̃ − θ̂)|; a cheaper bound if that is below ``tolerance``.
    double error(std::size_t question, double tolerance);
    // radius·‖φ‖_{V⁻¹}, the bonus of the confidence ellipsoid; +∞ without observations.
    double bonus(std::size_t question);
    // ‖φ‖_{H⁻¹}, and t such that the norm with the Hessian at θ̂ is within a factor e^{±t/2} of it.
    double hessian_norm(std::size_t question);
    double hessian_change(std::size_t question) const;
    // The rule's radius for the question after the current number of rounds.
    double radius(std::size_t question) const { return estimates_.radius(question); }
    // A standard normal draw for each pair; 1 if the rule uses no noise.
    double noise(std::size_t pair) const { return noise_.empty() ? 1.0 : noise_[pair]; }
    // The upper bound on the gain of continuing where the pair disagrees; 1 without labels.
    Gain::Upper gain(std::size_t pair);

    // Refine the comparison of a pair by one pass over the history. After kMaxPairPasses passes
    // (separable pairs with a tiny ridge), solve every regression. If there is still no certificate
    // because of rounding, compare the estimates directly (`exact`).
    void refine(std::size_t i, std::size_t j);
    // Read the history once for a question.
    void refine_question(std::size_t question, bool fresh_hessian, bool cautious);

    // Whether comparisons use the estimates without a certificate.
    bool exact() const { return exact_; }
    // Incremented whenever an estimate changes.
    std::size_t revision() const { return revision_; }

private:
    const double* phi(std::size_t question) const {
        return workspace_.phi[config_.questions[question]].data();
    }
    double cheap_norm(std::size_t question) const;

    Estimates& estimates_;
    const std::vector<Model>& models_;
    const PairGains& gains_;
    const Config& config_;
    Workspace& workspace_;
    std::vector<double> noise_;
    bool exact_, solved_ = false;
    std::size_t revision_ = 1;
};

}  // namespace stopwise
