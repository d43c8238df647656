#include "waiting_labels.h"

#include <algorithm>
#include <utility>

namespace stopwise {

namespace {

constexpr std::size_t kMostWaiting = 10'000;  // bounds memory; as many as the service lists

}  // namespace

std::int64_t WaitingLabels::missing() const {
    return dropped_ + std::count_if(waiting_.begin(), waiting_.end(),
                                    [](const WaitingLabel& one) { return one.missing; });
}

void WaitingLabels::add(WaitingLabel label, const Count& count) {
    waiting_.push_back(std::move(label));
    const auto known = std::min(static_cast<std::size_t>(answered_), kMostWaiting);
    const std::size_t most = std::min(known * known, kMostWaiting);
    auto uncounted = static_cast<std::size_t>(
        std::count_if(waiting_.begin(), waiting_.end(),
                      [](const WaitingLabel& one) { return !one.missing; }));
    for (WaitingLabel& one : waiting_) {
        if (uncounted <= most) break;
        if (one.missing) continue;
        one.missing = true;
        --uncounted;
        count(one);
    }
    if (waiting_.size() <= kMostWaiting) return;
    if (!waiting_.front().missing) count(waiting_.front());
    waiting_.pop_front();
    ++dropped_;
}

std::optional<WaitingLabel> WaitingLabels::take(std::int64_t round, const Count& count) {
    const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const WaitingLabel& one) {
        return one.request.round == round;
    });
    if (at == waiting_.end()) return {};
    for (auto before = waiting_.begin(); before != at; ++before) {
        if (before->missing) continue;
        before->missing = true;
        count(*before);
    }
    WaitingLabel answered = std::move(*at);
    waiting_.erase(at);
    ++answered_;
    return answered;
}

std::size_t WaitingLabels::nbytes() const {
    std::size_t n = 0;
    for (const WaitingLabel& one : waiting_) {
        n += sizeof(WaitingLabel) + one.row.size() * sizeof(double) + one.differ.size();
    }
    return n;
}

void WaitingLabels::archive(Archive& with, std::size_t n_arms, std::size_t width,
                            std::int64_t rounds, double largest) {
    with.count(answered_, kMostCounted, "its number of labels");
    with.count(dropped_, kMostCounted, "its number of labels");
    std::size_t n = waiting_.size();
    const std::size_t pairs = n_arms * (n_arms - 1) / 2;
    const std::int64_t room = with.reading() ? with.room(width * sizeof(double)) : kMostCounted;
    with.count(n, std::min(static_cast<std::int64_t>(kMostWaiting), room), "its number of labels");
    if (with.reading()) waiting_.assign(n, WaitingLabel{});
    std::int64_t before = -1;
    for (WaitingLabel& one : waiting_) {
        with.between(&one.request.probability, 1, kRarest, 1.0, "a probability");
        with.between(&one.request.explored, 1, 0.0, 1.0, "a probability");
        with.count(one.request.round, rounds, "a round");
        with.check(one.request.round > before, "a request");
        before = one.request.round;
        with.count(one.arms, static_cast<std::int64_t>(n_arms), "an arm");
        with.count(one.rule_stop, static_cast<std::int64_t>(n_arms) - 1, "an arm");
        with.check(one.arms > 1 && one.rule_stop < one.arms, "an arm");
        with.count(one.missing, 1, "whether a label is missing");
        if (with.reading()) {
            one.row.assign(width, 0.0);
            one.differ.assign(pairs, 0);
        }
        with.between(one.row.data(), width, -largest, largest, "a feature");
        with.pass(one.differ.data(), pairs);
        for (const unsigned char differ : one.differ) with.check(differ <= 1, "a disagreement");
    }
}

}  // namespace stopwise
