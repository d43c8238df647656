#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stopwise {

namespace {

// heuristic: largest change of a logit for a full step …
constexpr double kFullStep = 3.0;
// … and when cautious: a full step then provably decreases L
constexpr double kCautiousStep = 0.5;
// heuristic, by benchmark: ρ that justifies a new Hessian …
constexpr double kShiftLimit = 0.15;
// … relative to r, because ρ then dominates the certificate
constexpr double kShiftShare = 0.7;
// measured: typical largest change of a logit, relative to r
constexpr double kTypicalMove = 0.5;
// heuristic: log of the looseness at which the reach is remeasured
constexpr double kMaxReachAge = 0.25;
// heuristic: number of features from which a gradient is tried before a Hessian
constexpr std::size_t kManyFeatures = 24;
// heuristic, by benchmark: largest ρ accepted after a gradient alone …
constexpr double kMaxGradientShift = 1.5;
// … and when cautious: full steps decrease L up to this ρ
constexpr double kMaxCautiousShift = 0.5;
// heuristic: largest new r accepted after a gradient alone, relative to the old r
constexpr double kMaxGradientRatio = 0.8;
// accuracy accepted if rounding prevents a better one
constexpr double kStalledAccuracy = 1e-6;
// number of rows after which v is recomputed
constexpr int kSolveEvery = 64;
// error of adding a row to the factors, relative to the trace
constexpr double kRounding = 1e-15;
// lower limit of a weight, which is inverted
constexpr double kLightest = 1e-300;
// heuristic: share of the ridge below which it is restored
constexpr double kMinPriorShare = 0.995;
// heuristic: number of coordinates restored per round
constexpr int kRestored = 2;
// share of the weights or the ridge below which the history is read
constexpr double kMinShare = 0.5;

}  // namespace

Model::Model(std::size_t d, double ridge, double rate)
    : d_(d), stride_(padded(d)), ridge_(ridge), rate_(rate), prior_(rate > 0.0 ? d : 0, 1.0),
      old_(d, ridge, rate), theta_g_(stride_, 0.0), theta_h_(stride_, 0.0),
      gradient_(stride_, 0.0), step_(stride_, 0.0), estimate_(stride_, 0.0), hessian_(d, ridge),
      slack_(kInfinity), work_(stride_, 0.0) {}

double Model::logit(const double* phi) const {
    return kernels().dot(phi, estimate_.data(), stride_);
}

// With a margin for rounding of ‖φ‖ ≤ 1.
double Model::prior_bound() const {
    if (!summary_.empty()) return kInfinity;  // a quadratic may be negative
    return 1.0001 * std::sqrt(2.0 * kLn2 * count_ / ridge_);
}

double Model::hessian_norm(const double* phi, double* work) const {
    return std::sqrt(hessian_.square_norm(phi, work));
}

double Model::decrement() const {
    return std::sqrt(std::max(-kernels().dot(gradient_.data(), step_.data(), stride_), 0.0));
}

// z such that H(θ_g) is within e^{±z} of the stored H: the shift, that of old rows, the missing
// part of the prior, and the remainder of rows that the history has dropped since H was computed.
double Model::hessian_shift() const {
    if (rate_ == 0.0) return shift_;
    const bool nothing_dropped = rate_ * now_ < -log(kDropWeight);
    const double dropped =
        nothing_dropped ? 0.0 : kDropWeight * std::min(now_ - visited_, 1.0 + 1.0 / rate_);
    return shift_ + old_.shift() - log(prior_[oldest_]) + 0.25 * dropped / ridge_;
}

double Model::hessian_change() const {
    return hessian_shift() + reach_ * (decrement() + rounding_ + slack_);
}

void Model::find_step() {
    for (std::size_t c = 0; c < stride_; ++c) step_[c] = -gradient_[c];
    hessian_.solve(step_.data());
}

// The factors are those of a matrix within (d + since)·1e-15·trace of H, so the step has an error
// δv with ‖δv‖_H ≤ (d + since)·1e-15·trace·‖v‖/√ridge (docs/certificate-updates.md, step 9); an
// error of the gradient has the same effect.
void Model::update_slack() {
    for (std::size_t c = 0; c < stride_; ++c) estimate_[c] = theta_g_[c] + step_[c];
    const double size = std::sqrt(kernels().dot(step_.data(), step_.data(), stride_));
    const double steps = static_cast<double>(d_) + static_cast<double>(since_);
    rounding_ = kRounding * steps * trace_ * size / std::sqrt(ridge()) + old_.error();
    slack_ = certificate(decrement() + rounding_, reach_, hessian_shift()) + rounding_;
}

// Decay the weights of rows to ``now``; return whether the inputs of the step have changed.
bool Model::decay(double now) {
    const double rounds = now - now_;
    if (rate_ == 0.0 || rounds <= 0.0) return false;
    const double share = exp(-rate_ * rounds);
    now_ = now;
    count_ *= share;
    if (anchored_ && share < kMinShare) {
        anchored_ = false;
        slack_ = kInfinity;
    }
    if (!anchored_) return false;
    for (std::size_t c = 0; c < d_; ++c) {
        gradient_[c] = share * gradient_[c] + (1.0 - share) * ridge_ * theta_g_[c];
        prior_[c] *= share;
    }
    hessian_.scale(share);
    trace_ *= share;
    reach_ /= std::sqrt(share);
    reach_age_ += 0.5 * rate_ * rounds;
    for (int k = 0; k < kRestored && prior_[oldest_] < kMinPriorShare; ++k) {
        const double lost = (1.0 - prior_[oldest_]) * ridge_;
        std::fill(work_.begin(), work_.end(), 0.0);
        work_[oldest_] = 1.0;
        hessian_.add(work_.data(), lost);
        trace_ += lost;
        prior_[oldest_] = 1.0;
        oldest_ = (oldest_ + 1) % d_;
    }
    if (prior_[oldest_] < kMinShare) {
        anchored_ = false;
        slack_ = kInfinity;
        return false;
    }
    reach_ = std::min(reach_, 1.01 / std::sqrt(ridge()));  // as ‖φ‖ ≤ 1
    ++since_;
    return true;
}

void Model::advance(double now) {
    if (!decay(now)) return;
    find_step();
    update_slack();
}

void Model::learn(const double* phi, bool answer, double now) {
    decay(now);
    count_ += 1.0;
    if (!anchored_) return;  // not used yet: the first refinement reads the history
    const Kernels& kernel = kernels();
    const double logit_g = kernel.dot(phi, theta_g_.data(), stride_);
    double e = exp(-std::fabs(logit_g));
    // |μ(z) − d| without cancellation
    const double distance = (answer == (logit_g >= 0.0) ? e : 1.0) / (1.0 + e);
    const double error = answer ? -distance : distance;
    double logit_h = logit_g;
    if (shift_ > 0.0 || rate_ > 0.0) {  // otherwise θ_h = θ_g
        logit_h = kernel.dot(phi, theta_h_.data(), stride_);
        e = exp(-std::fabs(logit_h));
    }
    const double weight = std::max(e, kLightest) / ((1.0 + e) * (1.0 + e));
    lightest_ = std::min(lightest_, weight);
    shift_ = std::max(shift_, std::fabs(logit_g - logit_h));
    trace_ += weight;
    double* const inverse_phi = work_.data();
    const double before = hessian_.add(phi, weight, inverse_phi);
    // By Sherman–Morrison, the new −H⁻¹g differs along H⁻¹φ only
    const double coefficient = weight * kernel.dot(phi, step_.data(), stride_) + error;
    for (std::size_t c = 0; c < stride_; ++c) {
        gradient_[c] += error * phi[c];
        step_[c] -= coefficient * inverse_phi[c];
    }
    ++since_;
    if (rate_ > 0.0 || since_ % kSolveEvery == 0) find_step();
    reach_ = std::max(reach_, std::sqrt(before / (1.0 + weight * before)));
    update_slack();
}

void Model::refine(const Source& source, bool fresh_hessian, bool cautious, Effort& effort) {
    // If an allocation below fails, there must be no valid certificate.
    const bool was_anchored = anchored_;
    anchored_ = false;
    slack_ = kInfinity;
    double expected_shift = kInfinity;
    double r = 1.0;
    bool read_old = false;
    if (was_anchored) {
        const double decrement_before = decrement();
        r = decrement_before * reach_;
        const double max_move = cautious ? kCautiousStep : kFullStep;
        double move = kTypicalMove * r, fraction = 1.0;
        if (r > max_move) {  // measure how far the logits move
            move = largest_move(source);
            if (move > max_move) fraction = log1p(move) / move;
        }
        expected_shift = shift_ + fraction * move;
        for (std::size_t c = 0; c < d_; ++c) theta_g_[c] += fraction * step_[c];
        const double shift = std::min(r, 1.0);
        read_old = old_.review(theta_g_, source.now, decrement_before * shift, shift);
    } else {
        old_.clear();
    }
    bool with_hessian =
        fresh_hessian || read_old || expected_shift > std::min(kShiftLimit, kShiftShare * r);
    // With many features, a gradient is cheap relative to a Hessian, so try it first.
    const bool try_gradient =
        with_hessian && !fresh_hessian && !read_old && was_anchored && d_ >= kManyFeatures;
    double moved = visit(source, with_hessian && !try_gradient, effort);
    if (try_gradient) {
        find_step();
        with_hessian = moved > (cautious ? kMaxCautiousShift : kMaxGradientShift) ||
                       decrement() * reach_ > kMaxGradientRatio * r;
        if (with_hessian) moved = visit(source, true, effort);
    }
    if (with_hessian) {
        theta_h_ = theta_g_;
        shift_ = 0.0;
        // The new H is at least e^{−moved} times the old one, so no norm grew by more than
        // e^{moved/2}. This bound is used until it, or the growth of the history, becomes loose.
        reach_age_ += 0.5 * moved;
        const double growth = 0.5 * log(std::max(count_, 1.0) / std::max(measured_at_, 1.0));
        if (!was_anchored || reach_age_ + growth > kMaxReachAge) {
            reach_ = std::max(old_.reach(hessian_),
                              std::sqrt(source.largest_square_norm(hessian_, old_.until())));
            reach_age_ = 0.0;
            measured_at_ = count_;
        } else {
            reach_ = std::min(reach_ * exp(0.5 * moved), 2.0 / std::sqrt(ridge_));  // ‖φ‖ ≤ 1
        }
        if (rate_ > 0.0) reach_ = std::min(reach_, 1.01 / std::sqrt(ridge_));  // as ‖φ‖ ≤ 1
    } else {
        shift_ = moved;
    }
    anchored_ = true;
    find_step();
    update_slack();
}

// Recompute the gradient and, if ``with_hessian``, the Hessian at θ_g. Returns the largest
// |φ_sᵀ(θ_g − θ_h)| of the rows read.
double Model::visit(const Source& source, bool with_hessian, Effort& effort) {
    Numbers h;
    double moved = 0.0, lightest = 0.25;
    if (with_hessian) {
        h.assign(d_ * stride_, 0.0);
        if (rate_ > 0.0) moved = old_.read(source, theta_g_, theta_h_, effort);
    }
    Numbers& difference = work_;
    std::fill(difference.begin(), difference.end(), 0.0);
    for (std::size_t c = 0; c < d_; ++c) {
        gradient_[c] = ridge_ * theta_g_[c];
        difference[c] = theta_g_[c] - theta_h_[c];
    }
    if (rate_ > 0.0) {
        lightest = old_.add_to(theta_g_, source.now, gradient_, with_hessian ? &h : nullptr);
    } else if (!summary_.empty()) {
        summary_.add_gradient(theta_g_, gradient_);
        if (with_hessian) h = summary_.hessian;
        lightest = summary_.lightest;
    }
    Sums sums{source, theta_g_, difference, gradient_, with_hessian ? &h : nullptr};
    source.each_block(sums, old_.until());
    if (with_hessian) {
        trace_ = 0.0;
        for (std::size_t c = 0; c < d_; ++c) trace_ += h[c * stride_ + c] += ridge_;
        hessian_.take(h, ridge_);
        lightest_ = std::min(lightest, sums.lightest);
        since_ = 0;
        std::fill(prior_.begin(), prior_.end(), 1.0);
        visited_ = source.now;
        old_.compare(source, hessian_);
        ++effort.hessians;
    }
    old_.move_to(theta_g_, source.now);
    ++effort.passes;
    effort.rows_visited += static_cast<std::int64_t>(sums.rows);
    return std::max(moved, sums.moved);
}

void Model::summarise(const Source& source, Effort& effort) {
    solve(source, true, effort);
    refine(source, true, false, effort);  // sets θ_h = θ_g and the g and H of the summary
    Quadratic sum;
    sum.begin(theta_g_, d_);
    if (!summary_.empty()) {
        summary_.add_gradient(theta_g_, sum.gradient);
        sum.hessian = summary_.hessian;
        sum.lightest = summary_.lightest;
    }
    Sums sums{source, theta_g_, theta_g_, sum.gradient, &sum.hessian};
    source.each_old_block(sums);
    sum.lightest = std::min(sum.lightest, sums.lightest);
    summary_ = std::move(sum);
}

// max_s |φ_sᵀv|, the largest change of a logit by the full step.
double Model::largest_move(const Source& source) const {
    alignas(64) double z[kBlock];
    double largest = 0.0;
    source.each_block([&](const History::Block&, const double* x, std::size_t n) {
        largest = std::max(largest, kernels().project(x, n, d_, step_.data(), step_.data(), z));
    });
    return largest;
}

bool Model::solve(const Source& source, bool fresh_hessian, Effort& effort) {
    double best = kInfinity;
    if (anchored_) {
        find_step();
        update_slack();
    }
    for (int attempt = 0; attempt < kMaxRefinements; ++attempt) {
        const bool hessian_accurate = !fresh_hessian || hessian_shift() <= kExact;
        const double error = std::max(reach_, 1.0) * slack_;
        if (hessian_accurate && error <= kExact) return true;
        if (attempt % 8 == 0) {  // the last pass recomputed the Hessian
            if (hessian_accurate && error <= kStalledAccuracy && error > 0.5 * best) return true;
            best = error;
        }
        refine(source, fresh_hessian || attempt % 8 == 7, attempt >= kCautiousAfter, effort);
    }
    return false;
}

void Model::anchor_at(const double* theta, const Source& source, Effort& effort) {
    std::copy_n(theta, d_, theta_g_.begin());
    std::fill(step_.begin(), step_.end(), 0.0);
    refine(source, true, false, effort);
}

std::size_t Model::nbytes() const {
    const std::size_t more = prior_.size() + summary_.hessian.size() + 2 * summary_.theta.size();
    const std::size_t numbers = 6 * stride_ + more;
    return hessian_.nbytes() + old_.nbytes() + numbers * sizeof(double) + sizeof(Model);
}

void Model::serialize(Archive& archive, double count, double max_square_norm, bool summarised) {
    archive.count(anchored_, 1, "anchored flag");
    const double min_count = rate_ > 0.0 ? 0.0 : count;
    if (rate_ > 0.0) count = 1.0 + 1.0 / rate_;  // sum of weights, including dropped rows
    archive.between(&count_, 1, min_count, count, "number of observations");
    if (rate_ > 0.0) {
        archive.between(&now_, 1, 0.0, static_cast<double>(kMaxCount), "number of rounds");
        archive.between(&visited_, 1, 0.0, now_, "number of rounds");
        archive.between(prior_.data(), d_, anchored_ ? kMinShare : 0.0, 1.0, "share of the prior");
        archive.count(oldest_, static_cast<std::int64_t>(d_) - 1, "coordinate");
    }
    if (summarised) summary_.serialize(archive, d_, stride_);
    if (!anchored_) return;
    if (rate_ > 0.0) old_.serialize(archive, ridge_ * kMinShare, ridge_ + max_square_norm * count);
    for (Numbers* values : {&theta_g_, &theta_h_, &gradient_, &step_}) {
        archive.between(values->data(), d_, -1e100, 1e100, "estimate");
    }
    hessian_.serialize(archive, ridge(), ridge_ + max_square_norm * count);
    archive.count(since_, kMaxCount, "number of rows");
    archive.between(&reach_, 1, 0.0, 2.0 * std::sqrt(max_square_norm / ridge_), "reach");
    for (double* x : {&reach_age_, &measured_at_, &shift_, &lightest_, &trace_}) {
        archive.between(x, 1, 0.0, 1e100, "model state");
    }
    archive.check(lightest_ > 0.0 && lightest_ <= 0.25, "weight");
    if (archive.reading()) update_slack();
}

}  // namespace stopwise
