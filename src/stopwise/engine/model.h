// The logistic model of a pair: a maximum-likelihood estimate with a certificate (certificate.h).
//
// Solving the regression in every round would take several passes over the history; a decision
// needs much less. The model stores
//
//     θ_g        a point, with the exact gradient g = ∇L(θ_g) over the complete history
//     θ_h        a point, with the exact Hessian H = ∇²L(θ_h) over the complete history, as factors
//     v          the step −H⁻¹g, so that θ̃ = θ_g + v approximates the minimiser θ̂
//     reach, shift   of the certificate
//     lightest   min_s μ'(φ_sᵀθ_h), the smallest weight in H
//
// A new row updates all of these in O(d²). If the certificate does not decide a comparison,
// `refine` moves θ_g to θ̃ and reads the history once: for the gradient alone, O(d) per row, while
// the shift is small; otherwise for both, O(d²) per row.
//
// With forgetting, L weights a row of age k by e^{−rate·k}, but not the prior. g and H decay in
// every round. The prior's part of H is restored coordinate by coordinate; ``prior_`` has the share
// that is present (docs/certificate-updates.md, step 10). Old rows are rarely read (old_rows.h).
#pragma once

#include "certificate.h"
#include "old_rows.h"

namespace stopwise {

inline constexpr int kMaxRefinements = 500;  // damped Newton takes tens
inline constexpr int kCautiousAfter = 8;     // refinements before only proved steps are taken

class Model {
public:
    Model(std::size_t d, double ridge, double rate);

    // The logit φᵀθ̃.
    double logit(const double* phi) const;

    // b such that |φᵀ(θ̃ − θ̂)| ≤ b·‖φ‖_{H⁻¹}, including rounding errors; +∞ if there is no bound.
    double slack() const { return slack_; }

    // A bound on |φᵀθ̂| for ‖φ‖ ≤ 1 that does not depend on the estimate: L(θ̂) ≤ L(0) = n·ln 2, so
    // ‖θ̂‖ ≤ √(2n·ln 2/ridge).
    double prior_bound() const;

    // ‖φ‖_{H⁻¹}; ``work`` has padded(d) numbers.
    double hessian_norm(const double* phi, double* work) const;

    // t such that e⁻ᵗH ≼ ∇²L(θ̂) ≼ eᵗH, from the shift, the step and the remaining error.
    double hessian_change() const;

    // Decay the weights of rows to ``now`` learned rounds.
    void advance(double now);

    // Learn from a new row, already in the history, which is round number ``now`` (from 1).
    void learn(const double* phi, bool answer, double now);

    // Move θ_g along the step and read the history once. Far from the minimum, and if ``cautious``,
    // the step is damped to ln(1 + s)/s with s = max_s |φ_sᵀv|, which always decreases L.
    // ``fresh_hessian`` recomputes H at the new point, for rules that depend on H itself.
    void refine(const Source& source, bool fresh_hessian, bool cautious, Effort& effort);

    // Refine until every logit is exact to kExact, or to 1e-6 if rounding prevents that
    // (ill-conditioned histories); return whether this was reached.
    bool solve(const Source& source, bool fresh_hessian, Effort& effort);

    bool anchored() const { return anchored_; }
    double lightest() const { return lightest_; }
    // The smallest part of the ridge present in H.
    double ridge() const { return rate_ > 0.0 ? ridge_ * prior_[oldest_] : ridge_; }
    double reach() const { return reach_; }
    double shift() const { return shift_; }
    const Numbers& estimate() const { return estimate_; }  // θ̃
    const Factor& hessian() const { return hessian_; }

    // Replace the rows of the older blocks, before they are dropped, by a quadratic with their
    // gradient and Hessian at the estimate. It ignores later changes of their weights.
    void summarise(const Source& source, Effort& effort);

    // Move both θ_g and θ_h to a point (for tests).
    void anchor_at(const double* theta, const Source& source, Effort& effort);

    std::size_t nbytes() const;
    // Save or restore. The history has ``count`` observations with squared norms up to
    // ``max_square_norm``; rows may have been dropped if ``summarised``.
    void serialize(Archive& archive, double count, double max_square_norm, bool summarised);

private:
    bool decay(double now);
    double hessian_shift() const;
    double decrement() const;
    void find_step();
    void update_slack();
    double visit(const Source& source, bool with_hessian, Effort& effort);
    double largest_move(const Source& source) const;

    std::size_t d_, stride_;
    double ridge_, rate_;
    double now_ = 0.0;        // rounds learned, as of which L weights its rows
    double visited_ = 0.0;    // rounds learned when H was last recomputed
    Numbers prior_;           // with forgetting: the share of the ridge in H for each coordinate
    std::size_t oldest_ = 0;  // the coordinate with the smallest share
    Quadratic summary_;       // without forgetting: summary of dropped rows
    OldRows old_;             // with forgetting: summaries of old rows
    bool anchored_ = false;
    Numbers theta_g_, theta_h_, gradient_, step_, estimate_;
    Factor hessian_;
    double reach_ = 0.0;
    double reach_age_ = 0.0;    // log of the factor by which the reach may be too large
    double measured_at_ = 0.0;  // observations when the reach was last measured row by row
    double shift_ = 0.0;
    double lightest_ = 0.25;
    double trace_ = 0.0;  // of H
    double count_ = 0.0;  // observations
    std::int64_t since_ = 0;  // rows since H was last recomputed
    double slack_, rounding_ = 0.0;  // derived from the above
    Numbers work_;
};

}  // namespace stopwise
