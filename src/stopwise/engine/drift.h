// The change alarm: whether arms disagree more, or less, than they did before (docs/drift.md).
//
// A residual is d − p: whether two arms disagreed in a round that revealed both, less the chance that
// a model of earlier rounds gave it. The residuals of each pair go through ADWIN (Bifet and Gavaldà,
// "Learning from time-changing data with adaptive windowing", 2007). The model is the policy's own as of
// 256, 512, 1024, … rounds, and so again after a change; the windows then move by the mean difference
// of the two models over the latest rounds.
//
// Alarms are the same bits on every machine: sums are integers, chances and logarithms are the
// engine's, and everything else is + − × ÷ √ of single numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "estimates.h"

namespace stopwise {

inline constexpr std::size_t kTestBatch = 64;           // rounds that are tested at once
inline constexpr double kResidualUnit = 10'000.0;  // in which residuals are counted, as integers
// δ of ADWIN for all pairs together; docs/drift.md has the rate of false alarms.
inline constexpr double kFalseAlarm = 0.002;

// Two arms disagree more, or less, than they did in such contexts.
struct Change {
    std::int64_t round;  // about when it changed
    std::size_t i, j;
    double before, after;   // disagreement; before: what the latest contexts would have shown then
    std::int64_t noticed;   // the round after which there was an alarm
};

// The residuals of a pair since its last change, in ten-thousandths, in buckets.
class Adwin {
public:
    struct Bucket {
        std::int64_t rows, sum, squares, disagreed, first;  // ``first``: the round it begins with
    };
    struct Cut {
        std::int64_t round;
        double before, after;
    };
    explicit Adwin(double chance) : chance_(chance) {}

    // Add residuals; return where they changed, if they did. What came before is dropped.
    std::optional<Cut> add(const Bucket& residuals);
    // Drop the buckets that begin before a round.
    void forget(std::int64_t before);
    // Add a number to every residual: the model that they are relative to has changed.
    void move(std::int64_t by);

    const std::vector<Bucket>& buckets() const { return buckets_; }
    std::size_t nbytes() const { return buckets_.size() * sizeof(Bucket); }
    void serialize(Archive& archive, std::int64_t rounds);

private:
    std::optional<Cut> cut();

    double chance_;  // of a false alarm
    std::vector<Bucket> buckets_;
};

class Drift {
public:
    explicit Drift(const Config& config);

    // Add a round that was learned, by its features; return the changes that it made noticeable.
    std::vector<Change> add(const double* row, const Observation& round,
                            const Estimates& estimates);

    std::size_t nbytes() const;
    void serialize(Archive& archive, std::int64_t rounds);

private:
    // A pair of arms, and where its features are.
    struct Watched {
        std::size_t i, j, pair, offset, dim;
        std::vector<double> theta;  // the model; none before the first fit
        Adwin window;
    };
    struct Round {
        std::vector<double> row;
        std::vector<unsigned char> differ;  // of each pair watched; 0 for arms that did not run
        std::size_t stop = 0, rule_stop = 0;
    };

    std::vector<Change> test(std::size_t begin, std::int64_t rounds);
    void fit(const Estimates& estimates);
    bool counts(const Round& round, const Watched& pair) const;

    bool reveals_;
    std::size_t width_, n_arms_;
    std::vector<Watched> watched_;
    std::int64_t seen_ = 0, era_ = 0;  // rounds added so far, and at the last change
    std::vector<Round> latest_;  // a ring
};

}  // namespace stopwise
