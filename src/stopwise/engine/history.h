// The rounds seen so far. Rows are stored in blocks of 64, by the arm at which their round stopped: a
// question about arm j is answered in exactly the rounds that stopped at j or beyond, so a pass over
// its history reads complete blocks and nothing else. Inside a block, each feature is one column.
//
// Of the rounds that stopped at an arm, the first kMaxDistinct distinct rows are stored once, with
// counts: a stream of repeating contexts never outgrows its distinct contexts, nor does the cost of
// a pass over it. Later rows are stored one by one, with one bit per answer.
//
// With forgetting, a row of round s has the weight e^{−rate·(now − 1 − s)} after ``now`` rounds. Then
// no rows are counted, every row has its weight, and blocks are dropped once kForgotten is all that
// is left of the weight of their last row: so the rate bounds the memory.
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

// What a question ("do arms i and j disagree?", "is arm i wrong?") reads: ``dim`` features from
// ``offset`` on, in the rounds that stopped at ``arm`` or beyond. Questions that read the same share
// a matrix V. Where stages reveal the context, the rounds that stopped at ``from`` or beyond count,
// with answers that were drawn where the arm did not run; ``from`` is ``arm`` otherwise. The first
// ``linear`` features are the constant and the coordinates, the others products.
struct Scope {
    std::size_t offset, dim, arm, from, linear;

    friend bool operator==(const Scope& a, const Scope& b) {
        return a.offset == b.offset && a.dim == b.dim && a.arm == b.arm && a.from == b.from &&
               a.linear == b.linear;
    }
};

inline constexpr std::size_t kMaxDistinct = 4096;  // heuristic: small beside a long history
inline constexpr double kDropWeight = 1.0 / 4294967296.0;  // heuristic: 32 half-lives

// What a round loses of its weight in each round after it; nothing without a half-life.
inline double rate_of(double half_life) { return half_life > 0.0 ? kLn2 / half_life : 0.0; }

class History {
public:
    // ``answered_from``: for each question the first stop of the rounds that count.
    History(std::size_t n_arms, std::size_t width, std::vector<std::size_t> answered_from,
            double rate);

    // Append round number ``round``: its features, where it stopped, and 0 or 1 for each question
    // that it answers.
    void append(const double* row, std::size_t stop, const unsigned char* answers,
                std::int64_t round);

    struct Block {
        Block(std::size_t width, std::size_t n_questions, bool counted);
        std::size_t rows = 0;
        Numbers x;                             // width columns of kBlock
        std::vector<std::uint64_t> answers;    // a bit per row, for each question
        std::vector<std::int32_t> counts;      // of a counted block: how often each row was seen …
        std::vector<std::int32_t> positives;   // … and each question answered by yes: (Q, kBlock)
        std::vector<double> rounds;            // with forgetting: of each row its round
        Numbers weights;                       // … and its weight when the first row's was 1
    };

    // Call ``visit(block)`` for all blocks of rounds that stopped at ``from`` or beyond; with
    // forgetting, for those full before round ``until`` and not before round ``since``.
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

    // The older half of the blocks of rows stored one by one: visit them, and drop them.
    template <class Visit>
    void each_old_block(std::size_t from, Visit&& visit) const {
        for (std::size_t stop = from; stop < n_arms_; ++stop) {
            for (std::size_t b = 0; b < single_[stop].size() / 2; ++b) visit(single_[stop][b]);
        }
    }
    void drop_old();

    // How often each row of a block was seen, and how often it answered a question by yes; both
    // weighted, if anything is forgotten, as they count after ``now`` rounds.
    void tally(const Block& block, std::size_t question, double now, double* seen,
               double* positive) const;

    // How many rounds stopped at ``from`` or beyond.
    double observations(std::size_t from) const;

    std::size_t rows() const { return rows_; }
    // Those stored one by one, up to a block for each stop.
    std::size_t single_rows() const;
    // Those dropped that stopped at ``from`` or beyond.
    double dropped(std::size_t from) const;
    std::size_t nbytes() const;
    // Save or restore; at most ``rounds`` were seen, and no feature lies beyond ``largest``. Rows may
    // have been dropped if ``capped``.
    void serialize(Archive& archive, std::int64_t rounds, double largest, bool capped);

private:
    using Blocks = std::deque<Block>;

    std::uint64_t hash(const double* row, std::size_t stop) const;
    std::size_t find(const double* row, std::size_t stop, std::uint64_t hash) const;
    Block& with_room(Blocks& blocks, bool counted);
    void forget(std::int64_t round);
    double weight(const Block& block, std::size_t r) const;
    void put(Block& block, const double* row);
    void serialize(Block& block, Archive& archive, std::size_t stop, std::int64_t& rounds,
                 double largest);
    void index(Archive& archive);

    std::size_t n_arms_, width_;
    std::vector<std::size_t> answered_from_;
    double rate_;  // of forgetting, 0 for none
    std::size_t rows_ = 0;
    std::vector<Blocks> counted_, single_;  // by the stop
    std::vector<std::int64_t> dropped_;     // rows, by the stop
    std::unordered_multimap<std::uint64_t, std::size_t> index_;  // hash → place among the counted
};

}  // namespace stopwise
