// The rules: where the upper value that is compared with a cost gap comes from.
//
// Every rule stops at the first arm i with C_j − C_i > upper_ij(x) for all j > i. A rule is a small
// struct that gives upper_ij(x) as an interval, because estimates are only known to within their
// certificates; the stopping test compares, and spends a pass over history where the interval does not
// settle it. Questions are numbered as pairs (row by row), or as arms for the supervised rule. CONTRIBUTING.md shows how to add one.
#pragma once

#include <cstddef>

#include "certificate.h"

namespace stopwise {

// 54·ln 2: the logit from which a probability, as a double, is 1. A gap of one exceeds every smaller
// probability, and ties with those, as in directions never seen.
inline constexpr double kCertain = 37.429947750237049;

class At;  // the context at hand (at.h)

struct Rule {
    virtual ~Rule() = default;

    // Upper value of pair (i, j); ``threshold`` is what it will be compared with.
    virtual Upper upper(At& at, std::size_t i, std::size_t j, double threshold) const = 0;

    // A cost gap in the units of `upper`, and a value of `upper` as a probability.
    virtual double threshold(double gap) const { return gap == 1.0 ? kCertain : logit(gap); }
    virtual double shown(double value) const { return sigmoid(value); }

    // The question whose history is to be visited when (i, j) is not settled.
    virtual std::size_t unsettled(At& at, std::size_t i, std::size_t j) const;

    // The radius after n observations of the pair's V and so many rounds in all, with d' features.
    virtual double radius(double observations, double rounds, double n_features) const = 0;

    virtual double least() const { return 0.0; }        // no value of `upper` is below it, as a gap
    virtual double lam() const { return 0.0; }          // V starts as lam·I
    virtual double explored() const { return 1.0; }     // λ_min(V) from which the radius is proved
    virtual bool reads_gram() const { return true; }    // the upper value depends on V
    virtual bool reads_hessian() const { return false; }  // then H must be near θ̂, not only θ_g
    virtual bool takes_labels() const { return false; }   // labels can lower the upper value
    virtual bool of_arms() const { return false; }        // a question for each arm: "is it wrong?"
    virtual bool against_last() const { return false; }   // every question is about the last arm
    virtual bool draws() const { return false; }          // the upper value depends on `noise`
};

// α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ))            (Lemma "Confidence Ellipsoid")
struct Ellipsoid {
    double sigma, kappa, delta, n_arms;
    double alpha(double n, double n_features) const { return beta(n, n_features, 0.5, 0.0); }
    double beta(double n, double n_features, double lam, double S) const;  // see USS-PD-λI
};

// USS-PD: p̃ = μ(φᵀθ̂ + α‖φ‖_{V⁻¹}).
struct UssPd : Rule {
    explicit UssPd(Ellipsoid e) : ellipsoid(e) {}
    Upper upper(At& at, std::size_t i, std::size_t j, double threshold) const override;
    double radius(double observations, double rounds, double n_features) const override;
    bool takes_labels() const override { return true; }
    Ellipsoid ellipsoid;
};

// USS-PD-λI: the same with V + λI and β = (2σ/κ)·√(d'/2·ln(1 + n/(d'λ)) + ln(K²/2δ)) + 2√λ·S.
struct UssPdRidge : UssPd {
    UssPdRidge(Ellipsoid e, double lam, double S) : UssPd(e), lam_(lam), S_(S) {}
    double radius(double observations, double rounds, double n_features) const override;
    double lam() const override { return lam_; }
    double explored() const override { return 3.0 * lam_; }  // λ_min(V) ≥ 2λ, and V̄ has λ more
    double lam_, S_;
};

// USS-Laplace: p̃ = μ(φᵀθ̂ + radius·‖φ‖_{H⁻¹}), by the Laplace approximation of the posterior; the
// radius falls from 5·scale to scale.
struct Laplace : Rule {
    explicit Laplace(double s) : scale(s) {}
    Upper upper(At& at, std::size_t i, std::size_t j, double threshold) const override;
    double radius(double observations, double rounds, double n_features) const override;
    bool reads_gram() const override { return false; }
    bool reads_hessian() const override { return true; }
    bool takes_labels() const override { return true; }
    double scale;
};

// Thompson sampling: the same with a standard normal draw as a factor of the radius.
struct Thompson : Laplace {
    explicit Thompson(double s) : Laplace(s) {}
    bool takes_labels() const override { return false; }
    bool draws() const override { return true; }
};

// USS-Anchor: p̃_iK − p̂_jK, by which stopping at i and not at j may cost errors against the last arm
// K. Question (i, j) is "do j and K disagree?" as seen at arm i, and (i, K) the same of i and K.
struct Anchor : Laplace {
    explicit Anchor(double s) : Laplace(s) {}
    Upper upper(At& at, std::size_t i, std::size_t j, double threshold) const override;
    double radius(double, double, double) const override { return scale; }  // exploring is protection enough
    double threshold(double gap) const override { return gap; }
    double shown(double value) const override { return value; }
    std::size_t unsettled(At& at, std::size_t i, std::size_t j) const override;
    double least() const override { return -1.0; }
    bool takes_labels() const override { return false; }
    bool against_last() const override { return true; }
};

// The supervised comparator: UCB(γ_i) − LCB(γ_j), with one question per arm ("is it wrong?").
struct Supervised : UssPd {
    explicit Supervised(Ellipsoid e) : UssPd(e) {}
    Upper upper(At& at, std::size_t i, std::size_t j, double threshold) const override;
    double threshold(double gap) const override { return gap; }
    double shown(double value) const override { return value; }
    std::size_t unsettled(At& at, std::size_t i, std::size_t j) const override;
    double least() const override { return -1.0; }
    bool takes_labels() const override { return false; }
    bool of_arms() const override { return true; }
};

}  // namespace stopwise
