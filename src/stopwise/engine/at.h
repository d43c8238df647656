// The context at hand, as the rules and the stopping test see it.
#pragma once

#include <vector>

#include "comparison.h"
#include "estimates.h"
#include "gains.h"

namespace stopwise {

// Memory of `At` and of the stopping test, used again for the next context.
struct Workspace {
    struct Norm {  // ‖φ‖_{H⁻¹}, and the revision of the estimates to which it belongs
        double value = 0.0;
        std::size_t revision = 0;
    };
    explicit Workspace(const Plan& plan);
    // Only `beaten_by` outlives a context: it decides which estimates are refined first.
    void archive(Archive& with);

    std::vector<Numbers> phi;          // the features of each V, padded
    std::vector<double> norms;         // ‖φ‖_{V⁻¹} of each V, < 0 while not computed
    std::vector<double> bonuses;       // of each V, likewise
    std::vector<Norm> hessian_norms;   // of each question
    std::vector<Gain::Upper> gains;    // of each pair, NaN while not computed
    std::vector<int> refinements;      // passes over history for each pair's own comparison
    std::vector<Outcome> outcomes;     // of the stopping test, for each pair
    std::vector<std::size_t> beaten_by;  // for each arm the deeper arm that last beat it
    Numbers scratch;
};

class At {
public:
    // ``row`` are the features, ``noise`` has a number for each pair or none. If ``exact``, the
    // ``models`` are solved copies; otherwise they are those of the estimates, and may be refined.
    At(Estimates& estimates, const std::vector<Model>& models, bool exact, const Gains& gains,
       const Plan& plan, Workspace& workspace, const double* row, std::vector<double> noise);

    std::size_t pair(std::size_t i, std::size_t j) const { return plan_.pair(i, j); }
    std::size_t last_arm() const { return plan_.last(); }

    // φᵀθ̃, near the exact logit φᵀθ̂.
    double logit(std::size_t question) const;
    // A proved bound on |φᵀ(θ̃ − θ̂)|; a cheap one if it is below ``enough``.
    double error(std::size_t question, double enough);
    // radius·‖φ‖_{V⁻¹}, the optimism of the confidence ellipsoid; +∞ if nothing was seen.
    double bonus(std::size_t question);
    // ‖φ‖_{H⁻¹}, and t: the norm with the Hessian at θ̂ is within a factor e^{±t/2} of it.
    double hessian_norm(std::size_t question);
    double hessian_turn(std::size_t question) const;
    // The rule's radius for the question, with as many rounds as were seen.
    double radius(std::size_t question) const { return estimates_.radius(question); }
    // A standard normal draw for each pair; 1 where the rule draws nothing.
    double noise(std::size_t pair) const { return noise_.empty() ? 1.0 : noise_[pair]; }
    // The most that going on gains where the pair disagrees; 1 without labels.
    Gain::Upper gain(std::size_t pair);

    // Bring the comparison of a pair closer to its verdict: visit the history once for it. Where that
    // has not helped for long (separable pairs with a tiny ridge), solve every regression. If rounding
    // leaves even that without a certificate, compare the estimates as they are (`exact`).
    void refine(std::size_t i, std::size_t j);
    // Visit the history once for a question.
    void refine_question(std::size_t question, bool fresh_hessian, bool cautious);

    // Whether comparisons are by the estimates, whatever the certificate.
    bool exact() const { return exact_; }
    // Changes whenever an estimate does.
    std::size_t revision() const { return revision_; }

private:
    const double* phi(std::size_t question) const {
        return workspace_.phi[plan_.questions[question]].data();
    }
    double cheap_norm(std::size_t question) const;

    Estimates& estimates_;
    const std::vector<Model>& models_;
    const Gains& gains_;
    const Plan& plan_;
    Workspace& workspace_;
    std::vector<double> noise_;
    bool exact_, solved_ = false;
    std::size_t revision_ = 1;
};

}  // namespace stopwise
