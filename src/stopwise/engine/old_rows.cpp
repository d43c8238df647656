#include "old_rows.h"

#include <cmath>

#include "certificate.h"

namespace stopwise {

namespace {

// Heuristics, by benchmark. Rows are old after kOldAge half-lives, and a part spans kPart
// half-lives,
constexpr double kOldAge = 3.0, kPart = 1.0;
// if a half-life has at least this many rounds per feature; otherwise there are few rows to read.
constexpr double kLongHalfLife = 400.0;
// Accepted error of the quadratics, relative to the error that a pass leaves.
constexpr double kMaxError = 0.3;

}  // namespace

OldRows::OldRows(std::size_t d, double ridge, double rate) : d_(d), ridge_(ridge), rate_(rate) {}

// With a = point − θ_part, u ≥ |φ_sᵀa| for its rows, and H_part ≼ s·H, the gradient has an error of
// at most √s·‖a‖·(eᵘ − 1 − u)/u, and H of at most s·(eᵘ − 1)·H. The part still includes rows that
// the history has dropped since.
void OldRows::update_error(Part& part, const Numbers& point, double now) const {
    double square = 0.0;
    for (std::size_t c = 0; c < d_; ++c) {
        square += (point[c] - part.sum.theta[c]) * (point[c] - part.sum.theta[c]);
    }
    const double u = 1.0001 * std::sqrt(square);  // as ‖φ‖ ≤ 1, up to rounding
    Numbers unused(point.size(), 0.0);
    const double away = part.sum.add_gradient(point, unused);
    const double grown = u < 1.0 ? 3.0 * u / (6.0 - 2.0 * u) : exp(u);
    part.error = away > 0.0 ? std::sqrt(part.share) * away * grown : 0.0;  // avoids 0·∞
    part.shift = part.share > 0.0 ? part.share * growth(u) : 0.0;
    const double age = log(kDropWeight) / rate_;  // negative
    const double dropped = now + age - std::max(part.since, part.read + age);
    if (dropped > 0.0) part.shift += 0.25 * kDropWeight * dropped / ridge_;
}

bool OldRows::review(const Numbers& point, double now, double decrement, double shift) {
    // Otherwise `solve` could not remove the remaining shift.
    const double max_error = kMaxError * decrement;
    const double max_shift = shift < 1e-9 ? 0.5 * kExact : kMaxError * shift;
    for (Part& part : parts_) update_error(part, point, now);
    for (bool marked_any = false;; marked_any = true) {  // mark the part with the largest excess
        Part* worst = nullptr;
        double largest_share = 0.0, errors = 0.0, shifts = 0.0;
        for (Part& part : parts_) {
            if (part.marked) continue;
            errors += part.error;
            shifts += part.shift;
            const double share = part.error / std::max(max_error, 1e-300) +
                                 part.shift / std::max(max_shift, 1e-300);
            if (share > largest_share) {
                largest_share = share;
                worst = &part;
            }
        }
        if (worst == nullptr || !(errors > max_error || shifts > max_shift)) return marked_any;
        worst->marked = true;
    }
}

double OldRows::read(const Source& source, const Numbers& point, const Numbers& before,
                     Effort& effort) {
    const double half_life = kLn2 / rate_, old = source.now - kOldAge * half_life;
    const double oldest = source.now - 1.0 + log(kDropWeight) / rate_;
    while (!parts_.empty() && parts_.front().until <= oldest) parts_.erase(parts_.begin());
    if (half_life >= kLongHalfLife * static_cast<double>(d_)) {
        double since = std::max({until(), oldest, 0.0});
        for (; since + kPart * half_life <= old; since += kPart * half_life) {
            parts_.emplace_back(d_, ridge_, since, since + kPart * half_life);
        }
    }
    Numbers away(point.size());
    double moved = 0.0;
    for (Part& part : parts_) {
        if (!part.marked) continue;
        const Numbers& from = part.sum.empty() ? before : part.sum.theta;
        for (std::size_t c = 0; c < point.size(); ++c) away[c] = point[c] - from[c];
        part.sum.begin(point, d_);
        Sums sums{source, part.sum.theta, away, part.sum.gradient, &part.sum.hessian};
        source.each_block(sums, std::max(part.since, oldest), part.until);
        part.sum.lightest = sums.lightest;
        part.now = part.read = source.now;
        moved = std::max(moved, sums.moved);
        effort.rows_visited += static_cast<std::int64_t>(sums.rows);
    }
    return moved;
}

double OldRows::add_to(const Numbers& point, double now, Numbers& gradient, Numbers* hessian) {
    double lightest = 0.25;
    for (Part& part : parts_) {
        part.sum.scale(exp(-rate_ * (now - part.now)));
        part.now = now;
        part.sum.add_gradient(point, gradient);
        lightest = std::min(lightest, part.sum.lightest);
        for (std::size_t k = 0; hessian != nullptr && k < hessian->size(); ++k) {
            (*hessian)[k] += part.sum.hessian[k];
        }
    }
    return lightest;
}

void OldRows::compare(const Source& source, const Factor& hessian) {
    for (Part& part : parts_) {
        part.share = std::min(1.0, hessian.largest_ratio(part.sum.matrix()));
        if (!part.marked) continue;
        part.marked = false;
        part.hessian = hessian;
        part.reach = std::sqrt(source.largest_square_norm(hessian, part.since, part.until));
    }
}

void OldRows::move_to(const Numbers& point, double now) {
    error_ = shift_ = 0.0;
    for (Part& part : parts_) {
        update_error(part, point, now);
        error_ += part.error;
        shift_ += part.shift;
    }
    // ≥ ln(1 + shift) and −ln(1 − shift)
    shift_ = shift_ < 1.0 ? shift_ / (1.0 - shift_) : kInfinity;
}

// If H_ref ≼ c·H, norms are at most √c times those with H_ref.
double OldRows::reach(const Factor& hessian) const {
    double largest = 0.0;
    for (const Part& part : parts_) {
        const double ratio = hessian.largest_ratio(part.hessian.matrix());
        largest = std::max(largest, part.reach * std::sqrt(ratio));
    }
    return largest;
}

std::size_t OldRows::nbytes() const {
    std::size_t n = 0;
    for (const Part& part : parts_) {
        const std::size_t numbers = part.sum.hessian.size() + 2 * part.sum.theta.size();
        n += sizeof(Part) + part.hessian.nbytes() + numbers * sizeof(double);
    }
    return n;
}

void OldRows::serialize(Archive& archive, double min_eigenvalue, double max_eigenvalue) {
    std::size_t n = parts_.size();
    archive.count(n, archive.reading() ? archive.max_items(sizeof(double)) : kMaxCount, "old rows");
    const auto rounds = static_cast<double>(kMaxCount);
    double until = 0.0;
    for (std::size_t k = 0; k < n; ++k) {
        if (archive.reading()) parts_.emplace_back(d_, ridge_, 0.0, 0.0).marked = false;
        Part& part = parts_[k];
        archive.between(&part.since, 1, until, rounds, "old rounds");
        archive.between(&part.until, 1, part.since, rounds, "old rounds");
        until = part.until;
        archive.between(&part.read, 1, until, rounds, "number of rounds");
        archive.between(&part.now, 1, part.read, rounds, "number of rounds");
        part.sum.serialize(archive, d_, padded(d_));
        archive.between(&part.share, 1, 0.0, 1.0, "share");
        part.hessian.serialize(archive, min_eigenvalue, max_eigenvalue);
        archive.between(&part.reach, 1, 0.0, 1e100, "reach");
    }
    for (double* x : {&error_, &shift_}) archive.between(x, 1, 0.0, kInfinity, "error");
}

}  // namespace stopwise
