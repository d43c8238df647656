#include "first_rounds.h"

#include <algorithm>
#include <limits>

#include "learner.h"

namespace stopwise {

namespace {

constexpr double kMost = std::numeric_limits<double>::max();

}  // namespace

std::vector<double> FirstRounds::padded_context(const Known& known, std::size_t n_known) const {
    std::vector<double> context(known.context, known.context + n_known);
    context.resize(context_dim_, 0.0);
    return context;
}

std::vector<unsigned char> FirstRounds::revealed(const unsigned char* differ,
                                                 std::size_t n) const {
    std::vector<unsigned char> revealed;
    for (std::size_t i = 0; i < n_arms_; ++i) {
        for (std::size_t j = i + 1; j < n_arms_; ++j) {
            revealed.push_back(j < n && differ[revealed.size()] != 0);
        }
    }
    return revealed;
}

void FirstRounds::add(const Known& known, std::size_t n_known, const Observation& round) {
    rounds_.push_back({padded_context(known, n_known), revealed(round.answers, round.stop + 1),
                       round.stop, round.rule_stop, round.may_ask});
}

void FirstRounds::add(const Known& known, std::size_t n_known, const Label& label) {
    labels_.push_back({rounds_.size(), padded_context(known, n_known),
                       revealed(label.differ, label.n),
                       {label.right, label.right + label.n},
                       label.rule_stop,
                       label.request});
}

bool FirstRounds::due() const {
    const std::size_t n = rounds_.size();
    return n >= kFirstFit && (n & (n - 1)) == 0;
}

bool FirstRounds::full() const { return rounds_.size() >= kLastFit; }

FeatureMaps FirstRounds::fitted(const FeatureMaps& maps) const {
    std::vector<std::vector<double>> inputs(maps.slots());
    for (std::size_t slot = 0; slot < maps.slots(); ++slot) {
        const std::size_t dim = maps.input_dim(slot);
        for (const Round& round : rounds_) {
            if (maps.revealed() && round.stop < slot) continue;
            const std::size_t before = inputs[slot].size();
            inputs[slot].resize(before + dim);
            const Known known{round.context.data(), round.stop + 1, round.differ.data()};
            maps.input(slot, known, inputs[slot].data() + before);
        }
    }
    return maps.fitted(inputs);
}

void FirstRounds::replay(State& state) const {
    auto label = labels_.begin();
    const auto learn_labels = [&](std::size_t rounds) {
        for (; label != labels_.end() && label->after == rounds; ++label) {
            const std::size_t n = label->right.size();
            state.label({label->context.data(), n, label->differ.data()},
                        {n, label->rule_stop, label->right.data(), label->differ.data(),
                         label->request});
        }
    };
    learn_labels(0);
    for (std::size_t t = 0; t < rounds_.size(); ++t) {
        const Round& round = rounds_[t];
        state.observe({round.context.data(), round.stop + 1, round.differ.data()},
                      {round.stop, round.rule_stop, round.differ.data(), round.may_ask});
        learn_labels(t + 1);
    }
}

std::size_t FirstRounds::nbytes() const {
    const std::size_t pairs = n_arms_ * (n_arms_ - 1) / 2;
    const std::size_t each = sizeof(RoundLabel) + context_dim_ * sizeof(double) + pairs + n_arms_;
    return each * (rounds_.size() + labels_.size());
}

void FirstRounds::archive_values(Archive& with, std::vector<double>& context,
                                 std::vector<unsigned char>& differ) const {
    if (with.reading()) {
        context.resize(context_dim_);
        differ.resize(n_arms_ * (n_arms_ - 1) / 2);
    }
    with.between(context.data(), context.size(), -kMost, kMost, "a context");
    with.pass(differ.data(), differ.size());
    for (const unsigned char one : differ) with.check(one <= 1, "a disagreement");
}

void FirstRounds::archive(Archive& with, std::int64_t rounds) {
    const auto last = static_cast<std::int64_t>(n_arms_) - 1;
    const std::size_t least = context_dim_ * sizeof(double) + 3 * sizeof(std::int64_t);
    std::size_t n = rounds_.size(), n_labels = labels_.size();
    with.count(n, rounds, "its number of first rounds");
    with.check(static_cast<std::int64_t>(n) == rounds, "its number of first rounds");
    with.count(n_labels, with.reading() ? with.room(least) : kMostCounted, "its number of labels");
    if (with.reading()) {
        with.check(with.room(least) >= rounds, "its number of first rounds");
        rounds_.resize(n);
        labels_.resize(n_labels);
    }
    for (Round& round : rounds_) {
        archive_values(with, round.context, round.differ);
        with.count(round.stop, last, "an arm");
        with.count(round.rule_stop, static_cast<std::int64_t>(round.stop), "an arm");
        with.count(round.may_ask, 1, "whether a label may be asked for");
    }
    std::size_t before = 0;
    for (RoundLabel& label : labels_) {
        with.count(label.after, rounds, "the time of a label");
        with.check(label.after >= before, "the time of a label");
        before = label.after;
        archive_values(with, label.context, label.differ);
        std::size_t arms = label.right.size();
        with.count(arms, last + 1, "a number of arms");
        with.check(arms > 0, "a number of arms");
        if (with.reading()) label.right.resize(arms);
        with.pass(label.right.data(), arms);
        for (const unsigned char right : label.right) with.check(right <= 1, "a label");
        with.count(label.rule_stop, last, "an arm");
        bool requested = label.request.has_value();
        with.count(requested, 1, "whether a label was asked for");
        if (with.reading() && requested) label.request = LabelRequest{};
        if (!requested) continue;
        with.between(&label.request->probability, 1, kRarest, 1.0, "a probability");
        with.between(&label.request->explored, 1, 0.0, 1.0, "a probability");
        with.count(label.request->round, kMostCounted, "a round");
    }
}

}  // namespace stopwise
