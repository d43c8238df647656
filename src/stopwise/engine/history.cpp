#include "history.h"

namespace stopwise {

namespace {

constexpr std::size_t kNotFound = std::numeric_limits<std::size_t>::max();
constexpr double kMaxExponent = 600.0;  // e^600 is far from overflow
constexpr std::int32_t kMaxOccurrences = std::numeric_limits<std::int32_t>::max();

}  // namespace

History::Block::Block(std::size_t width, std::size_t n_questions, bool counted)
    : x(width * kBlock, 0.0), answers(counted ? 0 : n_questions, 0),
      counts(counted ? kBlock : 0, 0), positives(counted ? n_questions * kBlock : 0, 0) {}

History::History(std::size_t n_arms, std::size_t width, std::vector<std::size_t> answered_from,
                 double rate)
    : n_arms_(n_arms), width_(width), answered_from_(std::move(answered_from)), rate_(rate),
      counted_(n_arms), single_(n_arms), dropped_(n_arms, 0) {}

std::uint64_t History::hash(const double* row, std::size_t stop) const {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL ^ stop;
    for (std::size_t c = 0; c < width_; ++c) {
        const double value = row[c] + 0.0;  // maps −0 to 0, the same context
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        h = (h ^ bits) * 0xd6e8feb86659fd93ULL;
        h ^= h >> 32;
    }
    return h;
}

// The position of this row among the counted rows, or kNotFound.
std::size_t History::find(const double* row, std::size_t stop, std::uint64_t hash) const {
    const auto [first, last] = index_.equal_range(hash);
    for (auto entry = first; entry != last; ++entry) {
        const std::size_t position = entry->second, r = position % kBlock;
        if (position / kBlock >= counted_[stop].size()) continue;  // belongs to another stop
        const Block& block = counted_[stop][position / kBlock];
        bool same = r < block.rows;
        for (std::size_t c = 0; c < width_ && same; ++c) same = block.x[c * kBlock + r] == row[c];
        if (same) return position;
    }
    return kNotFound;
}

History::Block& History::block_with_space(Blocks& blocks, bool counted) {
    if (blocks.empty() || blocks.back().rows == kBlock) {
        blocks.emplace_back(width_, answered_from_.size(), counted);
        if (rate_ > 0.0) {
            blocks.back().rounds.reserve(kBlock);
            blocks.back().weights.assign(kBlock, 0.0);
        }
    }
    return blocks.back();
}

void History::store(Block& block, const double* row) {
    for (std::size_t c = 0; c < width_; ++c) block.x[c * kBlock + block.rows] = row[c];
    ++block.rows;
    ++rows_;
}

// Drop blocks whose weight is below kDropWeight.
void History::forget(std::int64_t round) {
    const double oldest = static_cast<double>(round) + log(kDropWeight) / rate_;
    for (Blocks& blocks : single_) {
        while (!blocks.empty() && blocks.front().rows == kBlock &&
               blocks.front().rounds.back() < oldest) {
            rows_ -= kBlock;
            blocks.pop_front();
        }
    }
}

void History::append(const double* row, std::size_t stop, const unsigned char* answers,
                     std::int64_t round) {
    if (rate_ > 0.0) forget(round);
    const auto is_positive = [&](std::size_t q) {
        return answered_from_[q] <= stop && answers[q] != 0;
    };
    const std::uint64_t h = hash(row, stop);
    std::size_t position = find(row, stop, h);
    Blocks& blocks = counted_[stop];
    const bool full =
        rate_ > 0.0 || (blocks.size() == kMaxDistinct / kBlock && blocks.back().rows == kBlock);
    const bool stored_singly =
        position == kNotFound
            ? full
            : blocks[position / kBlock].counts[position % kBlock] == kMaxOccurrences;
    if (stored_singly) {
        Block& block = block_with_space(single_[stop], false);
        const std::uint64_t bit = std::uint64_t{1} << block.rows;
        for (std::size_t q = 0; q < answered_from_.size(); ++q) {
            if (is_positive(q)) block.answers[q] |= bit;
        }
        if (rate_ > 0.0) {
            block.rounds.push_back(static_cast<double>(round));
            block.weights[block.rows] = weight(block, block.rows);
        }
        store(block, row);
        return;
    }
    if (position == kNotFound) {
        Block& block = block_with_space(blocks, true);
        position = (blocks.size() - 1) * kBlock + block.rows;
        index_.emplace(h, position);
        store(block, row);
    }
    Block& block = blocks[position / kBlock];
    ++block.counts[position % kBlock];
    for (std::size_t q = 0; q < answered_from_.size(); ++q) {
        if (is_positive(q)) ++block.positives[q * kBlock + position % kBlock];
    }
}

// The weight of a row relative to the block's first row.
double History::weight(const Block& block, std::size_t r) const {
    return exp(std::min(rate_ * (block.rounds[r] - block.rounds[0]), kMaxExponent));
}

void History::tally(const Block& block, std::size_t question, double now, double* count,
                    double* positive) const {
    if (rate_ > 0.0) {
        const std::uint64_t bits = block.answers[question];
        const double age = rate_ * (now - 1.0 - block.rounds[0]), first = exp(-age);
        for (std::size_t r = 0; r < kBlock; ++r) count[r] = first * block.weights[r];
        for (std::size_t r = 0; age >= kMaxExponent && r < block.rows; ++r) {
            count[r] = exp(-rate_ * (now - 1.0 - block.rounds[r]));  // the product could be 0·∞
        }
        for (std::size_t r = 0; r < kBlock; ++r) {
            positive[r] = count[r] * static_cast<double>(bits >> r & 1);
        }
    } else if (block.counts.empty()) {
        const std::uint64_t bits = block.answers[question];
        for (std::size_t r = 0; r < kBlock; ++r) {
            count[r] = r < block.rows ? 1.0 : 0.0;
            positive[r] = static_cast<double>(bits >> r & 1);
        }
    } else {
        const std::int32_t* positives = block.positives.data() + question * kBlock;
        for (std::size_t r = 0; r < kBlock; ++r) {
            count[r] = static_cast<double>(block.counts[r]);
            positive[r] = static_cast<double>(positives[r]);
        }
    }
}

void History::drop_old() {
    for (std::size_t stop = 0; stop < n_arms_; ++stop) {
        Blocks& blocks = single_[stop];
        const std::size_t old = blocks.size() / 2;
        blocks.erase(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(old));
        dropped_[stop] += static_cast<std::int64_t>(old * kBlock);
        rows_ -= old * kBlock;
    }
}

std::size_t History::single_rows() const {
    std::size_t n = 0;
    for (const Blocks& blocks : single_) n += blocks.size() * kBlock;
    return n;
}

double History::dropped(std::size_t from) const {
    double n = 0.0;
    for (std::size_t stop = from; stop < n_arms_; ++stop) n += static_cast<double>(dropped_[stop]);
    return n;
}

double History::observations(std::size_t from) const {
    double n = dropped(from);
    each_block(from, [&](const Block& block) {
        if (block.counts.empty()) n += static_cast<double>(block.rows);
        for (const std::int32_t count : block.counts) n += static_cast<double>(count);
    });
    return n;
}

std::size_t History::nbytes() const {
    std::size_t n = index_.size() * 4 * sizeof(std::size_t) + index_.bucket_count() * sizeof(void*);
    each_block(0, [&](const Block& block) {
        n += sizeof(Block) + block.x.size() * sizeof(double) +
             block.answers.size() * sizeof(std::uint64_t) +
             (block.counts.size() + block.positives.size()) * sizeof(std::int32_t) +
             (block.rounds.capacity() + block.weights.size()) * sizeof(double);
    });
    return n;
}

void History::serialize(Archive& archive, std::int64_t rounds, double largest, bool capped) {
    for (std::size_t stop = 0; capped && stop < n_arms_; ++stop) {
        archive.count(dropped_[stop], rounds, "number of dropped rows");
    }
    for (std::size_t stop = 0; stop < n_arms_; ++stop) {
        for (const bool counted : {true, false}) {
            Blocks& blocks = counted ? counted_[stop] : single_[stop];
            std::size_t n = blocks.size();
            archive.count(n, archive.max_items(width_ * sizeof(double)), "number of blocks");
            for (std::size_t b = 0; b < n; ++b) {
                if (archive.reading()) {
                    archive.check(block_with_space(blocks, counted).rows == 0,
                                  "partly filled block");
                    archive.check(!counted || blocks.size() <= kMaxDistinct / kBlock,
                                  "number of counted contexts");
                }
                serialize(blocks[b], archive, stop, rounds, largest);
            }
        }
    }
    index(archive);
}

// Save or restore a block of rounds that stopped at ``stop``; subtracts its rounds from ``rounds``.
void History::serialize(Block& block, Archive& archive, std::size_t stop, std::int64_t& rounds,
                        double largest) {
    const auto max_round = static_cast<double>(kMaxCount);
    archive.count(block.rows, kBlock, "number of rows in a block");
    archive.check(block.rows > 0, "number of rows in a block");
    for (std::size_t c = 0; c < width_; ++c) {
        archive.between(block.x.data() + c * kBlock, block.rows, -largest, largest, "feature");
    }
    archive.pass(block.answers.data(), block.answers.size());
    archive.pass(block.counts.data(), block.counts.size());
    archive.pass(block.positives.data(), block.positives.size());
    if (rate_ > 0.0) {
        archive.check(block.counts.empty(), "context counts");
        block.rounds.resize(block.rows);
        archive.between(block.rounds.data(), block.rows, 0.0, max_round, "round");
        archive.check(std::is_sorted(block.rounds.begin(), block.rounds.end()), "order of rounds");
        for (std::size_t r = 0; archive.reading() && r < block.rows; ++r) {
            block.weights[r] = weight(block, r);
        }
    }
    if (!archive.reading()) return;
    const bool counted = !block.counts.empty();
    for (std::size_t r = 0; r < kBlock; ++r) {
        const bool filled = r < block.rows;
        const std::int64_t n = counted ? block.counts[r] : filled ? 1 : 0;
        archive.check((filled ? n >= 1 : n == 0) && n <= rounds, "count of a context");
        rounds -= n;
        for (std::size_t q = 0; counted && q < answered_from_.size(); ++q) {
            const std::int64_t positive = block.positives[q * kBlock + r];
            archive.check(positive >= 0 && positive <= (answered_from_[q] <= stop ? n : 0),
                          "count of positive answers");
        }
    }
    for (std::size_t q = 0; q < block.answers.size(); ++q) {
        const std::uint64_t beyond = block.rows == kBlock ? 0 : block.answers[q] >> block.rows;
        archive.check(beyond == 0 && (answered_from_[q] <= stop || block.answers[q] == 0),
                      "unexpected answer");
    }
    rows_ += block.rows;
}

// The file also lists the distinct contexts by stop and position. Restoring rebuilds the index.
void History::index(Archive& archive) {
    std::vector<double> row(width_);
    std::vector<std::uint64_t> listed;
    for (std::size_t stop = 0; stop < n_arms_; ++stop) {
        std::size_t position = 0;
        for (const Block& block : counted_[stop]) {
            for (std::size_t r = 0; r < block.rows; ++r, ++position) {
                listed.push_back(stop | std::uint64_t{position} << 32);
                if (!archive.reading()) continue;
                for (std::size_t c = 0; c < width_; ++c) row[c] = block.x[c * kBlock + r];
                const std::uint64_t h = hash(row.data(), stop);
                archive.check(find(row.data(), stop, h) == kNotFound, "duplicate context");
                index_.emplace(h, position);
            }
        }
    }
    std::vector<std::uint64_t> restored = listed;
    std::size_t n = listed.size();
    archive.count(n, static_cast<std::int64_t>(n), "number of distinct contexts");
    archive.pass(restored.data(), n);
    std::sort(restored.begin(), restored.end());  // earlier versions list them by age
    std::sort(listed.begin(), listed.end());
    archive.check(n == listed.size() && restored == listed, "index of contexts");
}

}  // namespace stopwise
