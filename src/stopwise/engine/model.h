// One pair's logistic model: the exact maximum-likelihood estimate, by certificate (certificate.h).
//
// Solving the regression every round costs a pass over history; a decision needs far less. The model
// stores
//
//     θ_g        a point, with the exact gradient g = ∇L(θ_g) over all history
//     θ_h        a point, with the exact Hessian H = ∇²L(θ_h) over all history, as factors
//     v          the step −H⁻¹g, so that θ̃ = θ_g + v is nearly the minimiser θ̂
//     reach, shift   of the certificate
//     lightest   min_s μ'(φ_sᵀθ_h), the smallest weight in H
//
// A new row updates all of these in O(d²). When the certificate does not decide a comparison,
// `refine` moves θ_g to θ̃ and visits the history once: for the gradient alone, O(d) a row, while the
// Hessian is still near; for both, O(d²) a row, when the shift has grown.
//
// With forgetting, L weighs a row of age k by e^{−rate·k}, and not the prior: g and H lose the same
// share of all rows in every round. The prior's part of H is added again coordinate by coordinate,
// so that ``prior_`` of it is there (docs/certificate.md, step 10), and old rows are read rarely.
#pragma once

#include "certificate.h"
#include "old_rows.h"

namespace stopwise {

inline constexpr int kMaxRefinements = 500;  // a damped Newton run needs tens
inline constexpr int kCautiousAfter = 8;  // refinements in a row after which only sure steps are taken

class Model {
public:
    Model(std::size_t d, double ridge, double rate);

    // φᵀθ̃, the logit that `slack` is about.
    double logit(const double* phi) const;

    // b such that |φᵀ(θ̃ − θ̂)| ≤ b·‖φ‖_{H⁻¹}, rounding included; +∞ if nothing is proved.
    double slack() const { return slack_; }

    // A bound on |φᵀθ̂| for ‖φ‖ ≤ 1 that needs no estimate: L(θ̂) ≤ L(0) = n·ln 2, so that
    // ‖θ̂‖ ≤ √(2n·ln 2/ridge).
    double prior_bound() const;

    // ‖φ‖_{H⁻¹}; ``work`` has padded(d) numbers.
    double hessian_norm(const double* phi, double* work) const;

    // t such that e⁻ᵗH ≼ ∇²L(θ̂) ≼ eᵗH: the shift, the step and what is left of it.
    double hessian_turn() const;

    // Forget what rows lose until ``now`` rounds were learned.
    void advance(double now);

    // Learn from one more row, already in the history; with it, ``now`` rounds were learned.
    void learn(const double* phi, bool answer, double now);

    // Move θ_g along the step and visit the history once. Far from the minimum, and if ``cautious``,
    // the step is damped to ln(1 + s)/s with s = max_s |φ_sᵀv|, which always decreases L.
    // ``fresh_hessian`` requires H at the new point, for rules that depend on H itself.
    void refine(const Source& source, bool fresh_hessian, bool cautious, Effort& effort);

    // Refine until every logit is exact to kExact, or to 1e-6 where rounding allows no better
    // (ill-conditioned histories); return whether that was reached.
    bool solve(const Source& source, bool fresh_hessian, Effort& effort);

    bool anchored() const { return anchored_; }
    double lightest() const { return lightest_; }
    // what of it is in the H stored
    double ridge() const { return rate_ > 0.0 ? ridge_ * prior_[oldest_] : ridge_; }
    double reach() const { return reach_; }
    double shift() const { return shift_; }
    const Numbers& estimate() const { return estimate_; }  // θ̃
    const Factor& hessian() const { return hessian_; }

    // Replace the rows of the older blocks by a quadratic with their gradient and Hessian at the
    // estimate, before they are dropped. What the logits move later is then missing from it.
    void summarise(const Source& source, Effort& effort);

    // Put both anchors at a point (for tests).
    void anchor_at(const double* theta, const Source& source, Effort& effort);

    std::size_t nbytes() const;
    // Save or restore; its history has ``count`` observations, none of a squared norm above
    // ``longest``, and some were dropped if ``summarised``.
    void serialize(Archive& archive, double count, double longest, bool summarised);

private:
    bool fade(double now);
    double hessian_shift() const;
    double decrement() const;
    void find_step();
    void update_slack();
    double visit(const Source& source, bool with_hessian, Effort& effort);
    double largest_move(const Source& source) const;

    std::size_t d_, stride_;
    double ridge_, rate_;
    double now_ = 0.0;        // rounds learned, as L counts its rows …
    double visited_ = 0.0;    // … and when H was computed anew
    Numbers prior_;           // with forgetting: of each coordinate the share of the ridge in H
    std::size_t oldest_ = 0;  // the coordinate with the least
    Quadratic summary_;       // without forgetting: of rows that were dropped …
    OldRows old_;             // … and with it, of rows that count little
    bool anchored_ = false;
    Numbers theta_g_, theta_h_, gradient_, step_, estimate_;
    Factor hessian_;
    double reach_ = 0.0;
    double reach_age_ = 0.0;    // by how much, in logarithms, moves of θ_h may have loosened it
    double measured_at_ = 0.0;  // observations when the reach was measured row by row
    double shift_ = 0.0;
    double lightest_ = 0.25;
    double trace_ = 0.0;  // of H
    double count_ = 0.0;  // observations
    std::int64_t since_ = 0;  // rows since H was computed anew
    double slack_, rounding_ = 0.0;  // follow from the above
    Numbers work_;
};

}  // namespace stopwise
