#include "drift.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr std::size_t kBufferSize = 256;  // size of the ring buffer in rounds
constexpr std::int64_t kMinRows = 32;     // minimum number of residuals to test
// maximum number of buckets, and of recent ones that are not merged
constexpr std::size_t kMaxBuckets = 48, kUnmerged = 12;
// Heuristic, in standard deviations. A rule that continues only where it expects disagreement
// corrects overestimates but not underestimates, so its model has a bias that changes as it learns.
constexpr double kMinShift = 0.1;
constexpr double kMaxEstimate = 1e300;  // limit of a restored estimate

// p̂ in units of 1/kResidualUnit, from the features of a pair.
std::int64_t predicted(const double* phi, const std::vector<double>& theta) {
    double logit = 0.0;
    for (std::size_t c = 0; c < theta.size(); ++c) logit += phi[c] * theta[c];
    return std::llrint(kResidualUnit * sigmoid(logit));
}

}  // namespace

std::optional<Adwin::Cut> Adwin::add(const Bucket& residuals) {
    if (!buckets_.empty() && buckets_.back().rows < kMinRows) {
        Bucket& last = buckets_.back();
        last.rows += residuals.rows;
        last.sum += residuals.sum;
        last.squares += residuals.squares;
        last.disagreed += residuals.disagreed;
    } else {
        buckets_.push_back(residuals);
    }
    if (buckets_.size() > kMaxBuckets) {  // merge the two old neighbours with the fewest residuals
        std::size_t fewest = 0;
        const auto rows = [&](std::size_t k) { return buckets_[k].rows + buckets_[k + 1].rows; };
        for (std::size_t k = 1; k + 1 < buckets_.size() - kUnmerged; ++k) {
            if (rows(k) < rows(fewest)) fewest = k;
        }
        Bucket& first = buckets_[fewest];
        const Bucket& second = buckets_[fewest + 1];
        first.rows += second.rows;
        first.sum += second.sum;
        first.squares += second.squares;
        first.disagreed += second.disagreed;
        buckets_.erase(buckets_.begin() + static_cast<std::ptrdiff_t>(fewest) + 1);
    }
    return buckets_.back().rows >= kMinRows ? cut() : std::nullopt;
}

// Two parts of n₀ and n₁ residuals, 1/m = 1/n₀ + 1/n₁, differ if their means do by more than
// √(2σ²·ln(2/δ')/m) + 2·ln(2/δ')/(3m) + σ/10, δ' = δ/ln n (section 3 of the paper, but for the last
// term).
std::optional<Adwin::Cut> Adwin::cut() {
    // integers, so that sums are exact
    double rows = 0.0, sum = 0.0, squares = 0.0, disagreed = 0.0;
    for (const Bucket& bucket : buckets_) {
        rows += static_cast<double>(bucket.rows);
        sum += static_cast<double>(bucket.sum);
        squares += static_cast<double>(bucket.squares);
        disagreed += static_cast<double>(bucket.disagreed);
    }
    const double mean = sum / rows;
    const double variance = std::max(squares / rows - mean * mean, 0.0);
    const double log_term = log(2.0 * log(rows) / false_alarm_);
    const double min_shift = kMinShift * std::sqrt(variance);
    double left = 0.0, left_sum = 0.0, left_disagreed = 0.0, largest = 0.0;
    std::optional<Cut> best;
    std::size_t last_before = 0;
    for (std::size_t k = 0; k + 1 < buckets_.size(); ++k) {
        left += static_cast<double>(buckets_[k].rows);
        left_sum += static_cast<double>(buckets_[k].sum);
        left_disagreed += static_cast<double>(buckets_[k].disagreed);
        const double right = rows - left, per_m = 1.0 / left + 1.0 / right;
        const double limit = std::sqrt(2.0 * variance * log_term * per_m) +
                             kResidualUnit * 2.0 / 3.0 * log_term * per_m;
        const double shift = (sum - left_sum) / right - left_sum / left;
        const double excess = std::fabs(shift) - limit - min_shift;
        if (excess <= largest) continue;
        largest = excess;
        last_before = k;
        const double after = (disagreed - left_disagreed) / right;
        const double before = std::clamp(after - shift / kResidualUnit, 0.0, 1.0);
        best = Cut{buckets_[k + 1].first, before, after};
    }
    if (best) {
        buckets_.erase(buckets_.begin(),
                       buckets_.begin() + static_cast<std::ptrdiff_t>(last_before) + 1);
    }
    return best;
}

void Adwin::forget(std::int64_t before) {
    buckets_.erase(std::remove_if(buckets_.begin(), buckets_.end(),
                                  [&](const Bucket& bucket) { return bucket.first < before; }),
                   buckets_.end());
}

void Adwin::move(std::int64_t by) {
    for (Bucket& bucket : buckets_) {
        bucket.squares += 2 * by * bucket.sum + by * by * bucket.rows;
        bucket.sum += by * bucket.rows;
    }
}

void Adwin::serialize(Archive& archive, std::int64_t rounds) {
    std::size_t n = buckets_.size();
    archive.count(n, static_cast<std::int64_t>(kMaxBuckets), "number of buckets");
    if (archive.reading()) buckets_.assign(n, {});
    for (Bucket& bucket : buckets_) {
        archive.count(bucket.rows, rounds, "residuals");
        archive.pass(&bucket.sum, 1);
        // Residuals are within ±1; shifts to new models keep them well within ±20.
        const double rows = static_cast<double>(bucket.rows), limit = 20.0 * kResidualUnit;
        archive.check(std::fabs(static_cast<double>(bucket.sum)) <= limit * rows, "residuals");
        archive.pass(&bucket.squares, 1);
        archive.check(bucket.squares >= 0 &&
                          static_cast<double>(bucket.squares) <= limit * limit * rows,
                      "residuals");
        archive.count(bucket.disagreed, bucket.rows, "residuals");
        archive.count(bucket.first, rounds, "round");
        archive.check(bucket.rows > 0, "residuals");
    }
}

// A rule that compares each arm with the last has models of these pairs only.
Drift::Drift(const Config& config)
    : reveals_(config.reveals()), width_(config.width), n_arms_(config.n_arms),
      latest_(kBufferSize) {
    for (std::size_t i = 0; i < config.n_arms; ++i) {
        for (std::size_t j = i + 1; j < config.n_arms; ++j) {
            if (config.rule->compares_with_last() && j < config.last()) continue;
            const Scope& scope = config.scope_of(config.pair(i, j));
            const std::size_t n_pairs =
                config.rule->compares_with_last() ? config.last() : config.n_pairs();
            const Adwin window(kFalseAlarm / static_cast<double>(n_pairs));
            pairs_.push_back({i, j, config.pair(i, j), scope.offset, scope.dim, {}, window});
        }
    }
    for (Round& round : latest_) {
        round.row.assign(width_, 0.0);
        round.differ.assign(pairs_.size(), 0);
    }
}

std::vector<Change> Drift::add(const double* row, const Observation& round,
                               const Estimates& estimates) {
    const std::size_t position = static_cast<std::size_t>(added_) % kBufferSize;
    Round& entry = latest_[position];
    entry.row.assign(row, row + width_);
    entry.stop = round.stop;
    entry.rule_stop = round.rule_stop;
    for (std::size_t k = 0; k < pairs_.size(); ++k) {
        entry.differ[k] = pairs_[k].j <= round.stop && round.answers[pairs_[k].pair] != 0;
    }
    ++added_;
    if (static_cast<std::size_t>(added_) % kTestBatch != 0) return {};
    const std::vector<Change> changes = test(position + 1 - kTestBatch, estimates.rounds());
    if (!changes.empty()) last_change_ = added_;
    const std::int64_t age = added_ - last_change_;
    if (age >= static_cast<std::int64_t>(kBufferSize) && (age & (age - 1)) == 0) {
        for (MonitoredPair& pair : pairs_) pair.window.forget(estimates.rounds() - age / 2);
        fit(estimates);
    }
    return changes;
}

// Whether a round counts for a pair: both arms ran and, where stages reveal the context, continuing
// from i to j did not depend on information revealed after i.
bool Drift::counts(const Round& round, const MonitoredPair& pair) const {
    const bool independent = !reveals_ || pair.j == pair.i + 1 || round.rule_stop <= pair.i;
    return round.stop >= pair.j && independent;
}

// Test the latest rounds of the buffer, after ``rounds`` learned rounds.
std::vector<Change> Drift::test(std::size_t begin, std::int64_t rounds) {
    std::vector<Change> changes;
    for (std::size_t k = 0; k < pairs_.size(); ++k) {
        MonitoredPair& pair = pairs_[k];
        if (pair.theta.empty()) continue;
        Adwin::Bucket sums{0, 0, 0, 0, rounds - static_cast<std::int64_t>(kTestBatch)};
        for (std::size_t t = begin; t < begin + kTestBatch; ++t) {
            const Round& round = latest_[t];
            if (!counts(round, pair)) continue;
            const std::int64_t differs = round.differ[k];
            const std::int64_t expected = predicted(round.row.data() + pair.offset, pair.theta);
            const std::int64_t residual =
                static_cast<std::int64_t>(kResidualUnit) * differs - expected;
            ++sums.rows;
            sums.sum += residual;
            sums.squares += residual * residual;
            sums.disagreed += differs;
        }
        if (sums.rows == 0) continue;
        if (const auto cut = pair.window.add(sums)) {
            changes.push_back({cut->round, pair.i, pair.j, cut->before, cut->after, rounds});
        }
    }
    return changes;
}

// Copy the policy's estimates as the model; p̂ = ½ for a pair without one.
void Drift::fit(const Estimates& estimates) {
    for (MonitoredPair& pair : pairs_) {
        std::vector<double> theta = estimates.theta(pair.pair);
        theta.resize(pair.dim, 0.0);
        std::swap(theta, pair.theta);
        if (theta.empty()) continue;  // no previous model
        const bool any = std::any_of(latest_.begin(), latest_.end(),
                                     [&](const Round& round) { return counts(round, pair); });
        std::int64_t difference = 0, n = 0;
        for (const Round& round : latest_) {
            if (any && !counts(round, pair)) continue;
            const double* const phi = round.row.data() + pair.offset;
            difference += predicted(phi, theta) - predicted(phi, pair.theta);
            ++n;
        }
        pair.window.move(std::llrint(static_cast<double>(difference) / static_cast<double>(n)));
    }
}

std::size_t Drift::nbytes() const {
    std::size_t n = sizeof(Drift);
    for (const MonitoredPair& pair : pairs_) {
        n += sizeof(MonitoredPair) + pair.theta.size() * sizeof(double) + pair.window.nbytes();
    }
    return n + latest_.size() * (sizeof(Round) + width_ * sizeof(double) + pairs_.size());
}

void Drift::serialize(Archive& archive, std::int64_t rounds) {
    const auto last = static_cast<std::int64_t>(n_arms_) - 1;
    archive.count(added_, rounds, "number of rounds");
    archive.count(last_change_, added_, "number of rounds");
    for (MonitoredPair& pair : pairs_) {
        bool fitted = !pair.theta.empty();
        archive.count(fitted, 1, "model flag");
        if (archive.reading() && fitted) pair.theta.assign(pair.dim, 0.0);
        archive.between(pair.theta.data(), pair.theta.size(), -kMaxEstimate, kMaxEstimate,
                        "estimate");
        pair.window.serialize(archive, rounds);
    }
    for (Round& round : latest_) {
        archive.between(round.row.data(), width_, -kMaxFeature, kMaxFeature, "feature");
        archive.pass(round.differ.data(), round.differ.size());
        for (const unsigned char bit : round.differ) archive.check(bit <= 1, "disagreement");
        archive.count(round.stop, last, "arm index");
        archive.count(round.rule_stop, last, "arm index");
    }
}

}  // namespace stopwise
