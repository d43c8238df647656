#include "stopping.h"

#include "first_passing_arm.h"

namespace stopwise {

namespace {

// With labels, continuing corrects at most p·gain, and gap > p·gain is equivalent to gap/gain > p.
double gap_per_gain(double gap, double gain) {
    if (gain >= 1.0) return gap;
    if (gain > 0.0) return gap / gain;
    const bool loss = gap > 0.0 || (gap == 0.0 && gain < 0.0);  // of continuing
    return loss ? kInfinity : 0.0;
}

}  // namespace

StoppingTest::StoppingTest(const Config& config, ContextValues& values, Workspace& workspace,
                           Comparisons& comparisons)
    : config_(config), rule_(*config.rule), values_(values), comparisons_(comparisons),
      outcomes_(workspace.outcomes), beaten_by_(workspace.beaten_by) {
    outcomes_.assign(config.n_pairs(), Outcome{});
    comparisons.assign(config.n_pairs(), std::nullopt);
}

// The first arm i with C_j − C_i > p̃_ij(x)·g̃_ij(x) for all j > i, or the last (the paper, Lemma
// 2).
std::size_t StoppingTest::stop() {
    return first_passing_arm(config_.n_arms, [&](std::size_t i) { return passes(i); });
}

// A single proved loss decides, so all pairs are compared before any history is read. The loop
// terminates because `ContextValues::refine` eventually settles every outcome.
bool StoppingTest::passes(std::size_t i) {
    while (true) {
        Outcome outcome{Verdict::wins};
        const std::size_t n_deeper = config_.last() - i;
        for (std::size_t step = 0; step < n_deeper && outcome.verdict != Verdict::loses; ++step) {
            std::size_t j = beaten_by_[i] + step;  // first the arm that won last time
            if (j >= config_.n_arms) j -= n_deeper;
            outcome = both(outcome, wins(i, j));
            if (outcome.verdict == Verdict::loses) beaten_by_[i] = j;
        }
        if (outcome.verdict != Verdict::unsure) return outcome.verdict == Verdict::wins;
        values_.refine(outcome.i, outcome.j);
    }
}

// Whether i wins against j: directly or, if ``transitive``, through an arm k between them, since
// C_k − C_i > γ_i − γ_k and C_j − C_k > γ_k − γ_j add up (docs/theory-regret.md).
Outcome StoppingTest::wins(std::size_t i, std::size_t j) {
    const Outcome& cached = outcomes_[config_.pair(i, j)];
    if (cached.verdict != Verdict::unsure || cached.revision == values_.revision()) return cached;
    const Outcome direct = compare(i, j);
    Outcome outcome = direct;
    std::optional<Comparison>& comparison = comparisons_[config_.pair(i, j)];
    for (std::size_t k = i + 1; config_.transitive && k < j; ++k) {
        if (outcome.verdict == Verdict::wins) break;
        const Outcome first = wins(i, k);
        if (first.verdict == Verdict::loses) continue;
        outcome = either(outcome, both(first, wins(k, j)));
        if (outcome.verdict == Verdict::wins) comparison->through = static_cast<std::uint8_t>(k);
    }
    outcome.revision = values_.revision();
    outcomes_[config_.pair(i, j)] = outcome;
    comparison->won = outcome.verdict == Verdict::wins;
    const bool certain = direct.verdict != Verdict::unsure && outcome.verdict != Verdict::unsure;
    if (!certain) comparison.reset();  // not evidence for the decision yet
    return outcome;
}

// Compare the gap of (i, j) with its upper value; unsure if the certificate does not decide.
Outcome StoppingTest::compare(std::size_t i, std::size_t j) {
    const std::size_t pair = config_.pair(i, j);
    const auto [gain, response] = values_.gain(pair);
    const double gap = gap_per_gain(config_.gap(i, j), gain);
    const double threshold = gain < 1.0 ? rule_.threshold(gap) : config_.thresholds[pair];
    const Upper upper = rule_.upper(values_, i, j, threshold);
    const bool exact = values_.exact() || upper.high - upper.low <= 2.0 * kExact;
    Verdict verdict = certified(threshold, upper, exact);
    if (gap > 1.0) verdict = Verdict::wins;  // upper values are at most 1 …
    if (gap <= rule_.min_value()) verdict = Verdict::loses;  // … and at least this
    comparisons_[pair] = {upper.estimate, upper.value, gain, response, std::nullopt, false};
    return {verdict, i, j, threshold - upper.value, values_.revision()};
}

void StoppingTest::compare_up_to(std::size_t stop) {
    for (std::size_t i = 0; i <= stop; ++i) {
        for (std::size_t j = i + 1; j < config_.n_arms; ++j) wins(i, j);
    }
}

}  // namespace stopwise
