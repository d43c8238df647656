#include "history.h"

#include <algorithm>
#include <limits>

namespace stopwise {

namespace {

// The answers of four rows at a time.
constexpr double kFour[16][4] = {
    {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}, {0, 0, 1, 0}, {1, 0, 1, 0},
    {0, 1, 1, 0}, {1, 1, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 1}, {0, 1, 0, 1}, {1, 1, 0, 1},
    {0, 0, 1, 1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 1, 1}};

}  // namespace

History::Block::Block(std::size_t width, std::size_t n_questions, bool counted, bool weighted)
    : x(width * kBlock, 0.0), answers(counted ? 0 : n_questions, 0),
      counts(counted ? kBlock : 0, 0), positives(counted ? n_questions * kBlock : 0, 0),
      rule_stops(weighted ? kBlock : 0, 0) {}

History::History(std::size_t n_arms, std::size_t width, std::size_t n_questions,
                 std::size_t weight)
    : n_arms_(n_arms), width_(width), n_questions_(n_questions), weight_(weight),
      counted_(n_arms), single_(n_arms) {}

std::uint64_t History::hash(const double* row, std::size_t stop, std::size_t rule_stop) const {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL ^ (stop * 64 + (weight_ > 1 ? rule_stop : 0));
    for (std::size_t c = 0; c < width_; ++c) {
        const double value = row[c] + 0.0;  // −0 and 0 are one context
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        h = (h ^ bits) * 0xd6e8feb86659fd93ULL;
        h ^= h >> 32;
    }
    return h;
}

// The slot of the table that holds this row, or the free one where it belongs.
std::size_t History::find(const double* row, std::size_t stop, std::size_t rule_stop,
                          std::uint64_t hash) const {
    std::size_t slot = hash % table_.size();
    for (; table_[slot] >= 0; slot = (slot + 1) % table_.size()) {
        const Entry& entry = entries_[static_cast<std::size_t>(table_[slot])];
        if (entry.hash != hash || entry.stop != stop) continue;
        const Block& block = counted_[stop][entry.place / kBlock];
        const std::size_t r = entry.place % kBlock;
        if (weight_ > 1 && block.rule_stops[r] != rule_stop) continue;
        bool same = true;
        for (std::size_t c = 0; c < width_ && same; ++c) same = block.x[c * kBlock + r] == row[c];
        if (same) break;
    }
    return slot;
}

History::Block& History::with_room(Blocks& blocks, bool counted) {
    if (blocks.empty() || blocks.back().rows == kBlock) {
        blocks.emplace_back(width_, n_questions_, counted, weight_ > 1);
    }
    return blocks.back();
}

void History::put(Block& block, const double* row, std::size_t rule_stop) {
    for (std::size_t c = 0; c < width_; ++c) block.x[c * kBlock + block.rows] = row[c];
    if (weight_ > 1) block.rule_stops[block.rows] = static_cast<std::uint8_t>(rule_stop);
    ++block.rows;
    ++rows_;
}

// Whether the row that belongs in this slot is, or can be, one of those that are counted.
bool History::counts(std::size_t stop, std::size_t slot) const {
    const Blocks& blocks = counted_[stop];
    if (table_[slot] < 0) {
        return blocks.size() < kMaxDistinct / kBlock || blocks.back().rows < kBlock;
    }
    const std::size_t place = entries_[static_cast<std::size_t>(table_[slot])].place;
    return blocks[place / kBlock].counts[place % kBlock] < std::numeric_limits<std::int32_t>::max();
}

// Make room for one more entry, and say whether slots moved: the table stays at most half full.
bool History::make_table() {
    if (2 * (entries_.size() + 1) <= table_.size()) return false;
    table_.assign(std::max<std::size_t>(64, 2 * table_.size()), -1);
    entries_.reserve(table_.size() / 2);
    for (std::size_t e = 0; e < entries_.size(); ++e) {
        std::size_t slot = entries_[e].hash % table_.size();
        while (table_[slot] >= 0) slot = (slot + 1) % table_.size();
        table_[slot] = static_cast<std::int32_t>(e);
    }
    return true;
}

void History::index(std::uint64_t hash, std::size_t stop, std::size_t place, std::size_t slot) {
    table_[slot] = static_cast<std::int32_t>(entries_.size());
    entries_.push_back(
        {hash, static_cast<std::uint32_t>(stop), static_cast<std::uint32_t>(place)});
}

void History::append(const double* row, std::size_t stop, std::size_t rule_stop,
                     const unsigned char* answers, const std::vector<Question>& questions) {
    if (table_.empty()) make_table();
    rule_stop = std::min(rule_stop, stop);
    const std::uint64_t h = hash(row, stop, rule_stop);
    std::size_t slot = find(row, stop, rule_stop, h);
    if (!counts(stop, slot)) {
        Block& block = with_room(single_[stop], false);
        const std::uint64_t bit = std::uint64_t{1} << block.rows;
        for (std::size_t q = 0; q < questions.size(); ++q) {
            if (questions[q].arm <= stop && answers[q] != 0) block.answers[q] |= bit;
        }
        put(block, row, rule_stop);
        return;
    }
    if (table_[slot] < 0) {
        if (make_table()) slot = find(row, stop, rule_stop, h);
        Block& block = with_room(counted_[stop], true);
        const std::size_t place = (counted_[stop].size() - 1) * kBlock + block.rows;
        index(h, stop, place, slot);
        put(block, row, rule_stop);
    }
    const Entry& entry = entries_[static_cast<std::size_t>(table_[slot])];
    Block& block = counted_[stop][entry.place / kBlock];
    const std::size_t r = entry.place % kBlock;
    ++block.counts[r];
    for (std::size_t q = 0; q < questions.size(); ++q) {
        if (questions[q].arm <= stop && answers[q] != 0) ++block.positives[q * kBlock + r];
    }
}

void History::tally(const Block& block, std::size_t question, std::size_t arm, std::size_t stage,
                    double* seen, double* positive) const {
    if (block.counts.empty()) {
        const std::uint64_t bits = block.answers[question];
        for (std::size_t r = 0; r < kBlock; r += 4) {
            std::memcpy(positive + r, kFour[bits >> r & 15], sizeof kFour[0]);
        }
        for (std::size_t r = 0; r < block.rows; ++r) seen[r] = 1.0;
        for (std::size_t r = block.rows; r < kBlock; ++r) seen[r] = 0.0;
    } else {
        const std::int32_t* positives = block.positives.data() + question * kBlock;
        for (std::size_t r = 0; r < kBlock; ++r) {
            seen[r] = static_cast<double>(block.counts[r]);
            positive[r] = static_cast<double>(positives[r]);
        }
    }
    if (weight_ > 1 && stage < arm) {
        for (std::size_t r = 0; r < block.rows; ++r) {
            const auto times = static_cast<double>(weight_of(stage, arm, block.rule_stops[r]));
            seen[r] *= times;
            positive[r] *= times;
        }
    }
}

double History::observations(std::size_t arm, std::size_t stage) const {
    double seen[kBlock], positive[kBlock], n = 0.0;
    each_block(arm, [&](const Block& block) {
        tally(block, 0, arm, stage, seen, positive);
        for (std::size_t r = 0; r < kBlock; ++r) n += seen[r];
    });
    return n;
}

std::size_t History::nbytes() const {
    std::size_t n = entries_.capacity() * sizeof(Entry) + table_.capacity() * sizeof(std::int32_t);
    each_block(0, [&](const Block& block) {
        n += sizeof(Block) + block.x.size() * sizeof(double) +
             block.answers.size() * sizeof(std::uint64_t) +
             (block.counts.size() + block.positives.size()) * sizeof(std::int32_t) +
             block.rule_stops.size();
    });
    return n;
}

void History::save(Writer& to) const {
    for (std::size_t stop = 0; stop < n_arms_; ++stop) {
        for (const Blocks* blocks : {&counted_[stop], &single_[stop]}) {
            to.put<std::int64_t>(static_cast<std::int64_t>(blocks->size()));
            for (const Block& block : *blocks) {
                to.put<std::int64_t>(static_cast<std::int64_t>(block.rows));
                for (std::size_t c = 0; c < width_; ++c) {
                    to.put(block.x.data() + c * kBlock, block.rows);
                }
                to.put(block.answers.data(), block.answers.size());
                to.put(block.rule_stops.data(), block.rule_stops.size());
                to.put(block.counts.data(), block.counts.size());
                to.put(block.positives.data(), block.positives.size());
            }
        }
    }
    to.put<std::int64_t>(static_cast<std::int64_t>(entries_.size()));
    for (const Entry& entry : entries_) {
        to.put(entry.stop);
        to.put(entry.place);
    }
}

void History::restore(Reader& from, const std::vector<Question>& questions, std::int64_t rounds,
                      double largest) {
    std::size_t distinct = 0;
    for (std::size_t stop = 0; stop < n_arms_; ++stop) {
        for (const bool counted : {true, false}) {
            Blocks& blocks = counted ? counted_[stop] : single_[stop];
            const auto most = static_cast<std::int64_t>(from.room(width_ * sizeof(double)));
            const std::int64_t n = from.count(most, "its number of blocks");
            for (std::int64_t b = 0; b < n; ++b) {
                Block& block = with_room(blocks, counted);
                from.check(block.rows == 0, "a block that is not full");
                from.check(!counted || blocks.size() <= kMaxDistinct / kBlock,
                           "how many contexts are counted");
                restore(block, from, questions, stop, rounds, largest);
                rows_ += block.rows;
                distinct += counted ? block.rows : 0;
            }
        }
    }
    constexpr const char* kContradiction = "its index of contexts";
    const auto most = static_cast<std::int64_t>(distinct);
    from.check(from.count(most, "its number of distinct contexts") == most, kContradiction);
    std::vector<double> row(width_);
    for (std::int64_t e = 0; e < most; ++e) {
        const std::size_t stop = from.get<std::uint32_t>(), place = from.get<std::uint32_t>();
        from.check(stop < n_arms_ && place / kBlock < counted_[stop].size() &&
                       place % kBlock < counted_[stop][place / kBlock].rows,
                   kContradiction);
        const Block& block = counted_[stop][place / kBlock];
        for (std::size_t c = 0; c < width_; ++c) row[c] = block.x[c * kBlock + place % kBlock];
        const std::size_t rule_stop = weight_ > 1 ? block.rule_stops[place % kBlock] : 0;
        make_table();
        const std::uint64_t h = hash(row.data(), stop, rule_stop);
        const std::size_t slot = find(row.data(), stop, rule_stop, h);
        from.check(table_[slot] < 0, "a distinct context that it holds twice");
        index(h, stop, place, slot);
    }
}

// Restore a block of rounds that stopped at ``stop``; ``rounds`` loses as many as it holds.
void History::restore(Block& block, Reader& from, const std::vector<Question>& questions,
                      std::size_t stop, std::int64_t& rounds, double largest) const {
    const bool counted = !block.counts.empty();
    block.rows = static_cast<std::size_t>(from.count(kBlock, "the rows of a block"));
    from.check(block.rows > 0, "a block without rows");
    for (std::size_t c = 0; c < width_; ++c) {
        from.between(block.x.data() + c * kBlock, block.rows, -largest, largest, "a feature");
    }
    from.get(block.answers.data(), block.answers.size());
    from.get(block.rule_stops.data(), block.rule_stops.size());
    from.get(block.counts.data(), block.counts.size());
    from.get(block.positives.data(), block.positives.size());
    for (std::size_t r = 0; r < kBlock; ++r) {
        const bool here = r < block.rows;
        const std::int64_t n = counted ? block.counts[r] : here ? 1 : 0;
        from.check((here ? n >= 1 : n == 0) && n <= rounds, "how often a context was seen");
        rounds -= n;
        from.check(weight_ == 1 || block.rule_stops[r] <= (here ? stop : 0), "where a rule stopped");
        for (std::size_t q = 0; counted && q < n_questions_; ++q) {
            const std::int64_t yes = block.positives[q * kBlock + r];
            from.check(yes >= 0 && yes <= (questions[q].arm <= stop ? n : 0),
                       "how often an answer was yes");
        }
    }
    for (std::size_t q = 0; q < block.answers.size(); ++q) {
        const std::uint64_t beyond = block.rows == kBlock ? 0 : block.answers[q] >> block.rows;
        from.check(beyond == 0 && (questions[q].arm <= stop || block.answers[q] == 0),
                   "an answer to no question");
    }
}

}  // namespace stopwise
