// Detection of changes in the disagreement of arms (docs/drift.md).
//
// A residual is d − p: whether two arms disagreed in a round that ran both, minus the probability
// predicted by a model of earlier rounds. ADWIN (Bifet and Gavaldà, "Learning from time-changing
// data with adaptive windowing", 2007) monitors the residuals of each pair. The model is a copy of
// the policy's own after 256, 512, 1024, … rounds, restarting after a change; a new copy shifts the
// windows by the mean difference of the two models over the latest rounds.
//
// Alarms are bit-identical on every machine: sums are integers, probabilities and logarithms are
// the engine's, and all other operations are + − × ÷ √.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "estimates.h"

namespace stopwise {

inline constexpr std::size_t kTestBatch = 64;      // rounds per test
// residuals are stored as integer multiples of 1/this
inline constexpr double kResidualUnit = 10'000.0;
// δ of ADWIN for all pairs together; docs/drift.md has the measured rate of false alarms.
inline constexpr double kFalseAlarm = 0.002;

// A detected change in how often two arms disagree.
struct Change {
    std::int64_t round;  // estimated round of the change
    std::size_t i, j;
    // disagreement on the latest contexts, expected without the change and actual
    double before, after;
    std::int64_t noticed;  // the round after which it was detected
};

// The residuals of a pair since its last change, in units of 1/kResidualUnit, in buckets.
class Adwin {
public:
    struct Bucket {
        std::int64_t rows, sum, squares, disagreed, first;  // ``first``: its first round
    };
    struct Cut {
        std::int64_t round;
        double before, after;
    };
    explicit Adwin(double false_alarm) : false_alarm_(false_alarm) {}

    // Add residuals. If a change is detected, drop the residuals before it and return it.
    std::optional<Cut> add(const Bucket& residuals);
    // Drop the buckets that begin before a round.
    void forget(std::int64_t before);
    // Add a number to every residual, because their model has changed.
    void move(std::int64_t by);

    const std::vector<Bucket>& buckets() const { return buckets_; }
    std::size_t nbytes() const { return buckets_.size() * sizeof(Bucket); }
    void serialize(Archive& archive, std::int64_t rounds);

private:
    std::optional<Cut> cut();

    double false_alarm_;  // probability
    std::vector<Bucket> buckets_;
};

class Drift {
public:
    explicit Drift(const Config& config);

    // Add a learned round, by its features; return the changes detected.
    std::vector<Change> add(const double* row, const Observation& round,
                            const Estimates& estimates);

    std::size_t nbytes() const;
    void serialize(Archive& archive, std::int64_t rounds);

private:
    // A monitored pair of arms and the position of its features.
    struct MonitoredPair {
        std::size_t i, j, pair, offset, dim;
        std::vector<double> theta;  // the model; empty before the first fit
        Adwin window;
    };
    struct Round {
        std::vector<double> row;
        std::vector<unsigned char> differ;  // for each watched pair; 0 for arms that did not run
        std::size_t stop = 0, rule_stop = 0;
    };

    std::vector<Change> test(std::size_t begin, std::int64_t rounds);
    void fit(const Estimates& estimates);
    bool counts(const Round& round, const MonitoredPair& pair) const;

    bool reveals_;
    std::size_t width_, n_arms_;
    std::vector<MonitoredPair> pairs_;
    std::int64_t added_ = 0, last_change_ = 0;  // rounds added so far, and at the last change
    std::vector<Round> latest_;        // ring buffer
};

}  // namespace stopwise
