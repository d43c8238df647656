// The observed rounds, in blocks of 64 rows grouped by the arm at which the round stopped. A
// question about arm j is answered exactly by the rounds that stopped at j or deeper, so a pass
// over its history reads only complete blocks. Within a block, each feature is a column.
//
// For each arm, the first kMaxDistinct distinct rows of rounds that stopped there are stored once,
// with counts, so that memory and passes do not grow with repeated contexts. Later rows are stored
// individually, with one bit per answer.
//
// With forgetting, a row of round s has weight e^{−rate·(now − 1 − s)} after ``now`` rounds. Then
// rows are not counted, each row has its own weight, and a block is dropped once the weight of its
// last row is below kDropWeight, so that the rate bounds the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <unordered_map>

#include "archive.h"
#include "kernels.h"
#include "link.h"

namespace stopwise {

// The data of a question ("do arms i and j disagree?", "is arm i wrong?"): ``dim`` features from
// ``offset``, in the rounds that stopped at ``arm`` or deeper. Questions with equal scopes share a
// matrix V. Where stages reveal the context, the rounds that stopped at ``from`` or deeper count,
// with drawn answers where the arm did not run; otherwise ``from`` is ``arm``. The first ``linear``
// features are the constant and the coordinates, the others products.
struct Scope {
    std::size_t offset, dim, arm, from, linear;

    friend bool operator==(const Scope& a, const Scope& b) {
        return a.offset == b.offset && a.dim == b.dim && a.arm == b.arm && a.from == b.from &&
               a.linear == b.linear;
    }
};

inline constexpr std::size_t kMaxDistinct = 4096;  // heuristic: small relative to a long history
inline constexpr double kDropWeight = 1.0 / 4294967296.0;  // heuristic: 32 half-lives

// The decay rate of a half-life in rounds; 0 without one.
inline double rate_of(double half_life) { return half_life > 0.0 ? kLn2 / half_life : 0.0; }

class History {
public:
    // ``answered_from`` has, for each question, the first stop of the rounds that count.
    History(std::size_t n_arms, std::size_t width, std::vector<std::size_t> answered_from,
            double rate);

    // Append round number ``round`` with its features, its stop, and 0 or 1 for each question that
    // it answers.
    void append(const double* row, std::size_t stop, const unsigned char* answers,
                std::int64_t round);

    struct Block {
        Block(std::size_t width, std::size_t n_questions, bool counted);
        std::size_t rows = 0;
        Numbers x;                             // width columns of kBlock
        std::vector<std::uint64_t> answers;   // a bit per row, for each question
        std::vector<std::int32_t> counts;     // of a counted block: occurrences of each row …
        std::vector<std::int32_t> positives;  // … and positive answers: (questions, kBlock)
        std::vector<double> rounds;           // with forgetting: the round of each row …
        Numbers weights;                      // … and its weight relative to the first row
    };

    // Call ``visit(block)`` for all blocks of rounds that stopped at ``from`` or deeper; with
    // forgetting, for the blocks filled before round ``until`` and not before round ``since``.
    template <class Visit>
    void each_block(std::size_t from, Visit&& visit, double since = -kInfinity,
                    double until = kInfinity) const {
        for (std::size_t stop = from; stop < n_arms_; ++stop) {
            for (const Block& block : counted_[stop]) visit(block);
            const Blocks& blocks = single_[stop];
            const auto reached = [&](double round) {
                return std::partition_point(blocks.begin(), blocks.end(), [&](const Block& block) {
                    return block.rows == kBlock && block.rounds.back() < round;
                });
            };
            auto block = since > -kInfinity ? reached(since) : blocks.begin();
            const auto end = until < kInfinity ? reached(until) : blocks.end();
            for (; block != end; ++block) visit(*block);
        }
    }

    // Visit or drop the older half of the blocks of individually stored rows.
    template <class Visit>
    void each_old_block(std::size_t from, Visit&& visit) const {
        for (std::size_t stop = from; stop < n_arms_; ++stop) {
            for (std::size_t b = 0; b < single_[stop].size() / 2; ++b) visit(single_[stop][b]);
        }
    }
    void drop_old();

    // The occurrences of each row of a block and its positive answers to a question, both weighted
    // as of ``now`` rounds with forgetting.
    void tally(const Block& block, std::size_t question, double now, double* count,
               double* positive) const;

    // The number of rounds that stopped at ``from`` or deeper.
    double observations(std::size_t from) const;

    std::size_t rows() const { return rows_; }
    // The number of individually stored rows, rounded up to blocks.
    std::size_t single_rows() const;
    // The number of dropped rows of rounds that stopped at ``from`` or deeper.
    double dropped(std::size_t from) const;
    std::size_t nbytes() const;
    // Save or restore, with at most ``rounds`` rounds and features of at most ``largest``. Rows may
    // have been dropped if ``capped``.
    void serialize(Archive& archive, std::int64_t rounds, double largest, bool capped);

private:
    using Blocks = std::deque<Block>;

    std::uint64_t hash(const double* row, std::size_t stop) const;
    std::size_t find(const double* row, std::size_t stop, std::uint64_t hash) const;
    Block& block_with_space(Blocks& blocks, bool counted);
    void forget(std::int64_t round);
    double weight(const Block& block, std::size_t r) const;
    void store(Block& block, const double* row);
    void serialize(Block& block, Archive& archive, std::size_t stop, std::int64_t& rounds,
                   double largest);
    void index(Archive& archive);

    std::size_t n_arms_, width_;
    std::vector<std::size_t> answered_from_;
    double rate_;  // of forgetting; 0 without
    std::size_t rows_ = 0;
    std::vector<Blocks> counted_, single_;  // by the stop
    std::vector<std::int64_t> dropped_;     // rows, by the stop
    std::unordered_multimap<std::uint64_t, std::size_t> index_;  // hash → position of a counted row
};

}  // namespace stopwise
