#include "stopping.h"

#include "first_passing.h"

namespace stopwise {

namespace {

// Labels: going on corrects at most p·gain, and gap > p·gain is a test of p alone, gap/gain > p.
double gap_per_gain(double gap, double gain) {
    if (gain >= 1.0) return gap;
    if (gain > 0.0) return gap / gain;
    const bool loss = gap > 0.0 || (gap == 0.0 && gain < 0.0);  // of going on
    return loss ? kInfinity : 0.0;
}

}  // namespace

StoppingTest::StoppingTest(const Plan& plan, At& at, Workspace& workspace,
                           Comparisons& comparisons)
    : plan_(plan), rule_(*plan.rule), at_(at), comparisons_(comparisons),
      outcomes_(workspace.outcomes), beaten_by_(workspace.beaten_by) {
    outcomes_.assign(plan.n_pairs(), Outcome{});
    comparisons.assign(plan.n_pairs(), std::nullopt);
}

// The first arm i with C_j − C_i > p̃_ij(x)·g̃_ij(x) for all j > i, or the last (the paper, Lemma 2).
std::size_t StoppingTest::stop() {
    return first_passing(plan_.n_arms, [&](std::size_t i) { return passes(i); });
}

// One proved loss decides, so all pairs are compared before the history of any is read. The loop ends:
// `At::refine` makes every outcome certain in the end.
bool StoppingTest::passes(std::size_t i) {
    while (true) {
        Outcome all{Verdict::wins};
        const std::size_t deeper = plan_.last() - i;
        for (std::size_t step = 0; step < deeper && all.verdict != Verdict::loses; ++step) {
            std::size_t j = beaten_by_[i] + step;  // the arm that won last time is likely to win again
            if (j >= plan_.n_arms) j -= deeper;
            all = both(all, wins(i, j));
            if (all.verdict == Verdict::loses) beaten_by_[i] = j;
        }
        if (all.verdict != Verdict::unsure) return all.verdict == Verdict::wins;
        at_.refine(all.i, all.j);
    }
}

// Whether i wins against j: directly or, if ``transitive``, through an arm k between them, since
// C_k − C_i > γ_i − γ_k and C_j − C_k > γ_k − γ_j add up (docs/theory-regret.md).
Outcome StoppingTest::wins(std::size_t i, std::size_t j) {
    const Outcome& known = outcomes_[plan_.pair(i, j)];
    if (known.verdict != Verdict::unsure || known.revision == at_.revision()) return known;
    const Outcome direct = compare(i, j);
    Outcome outcome = direct;
    std::optional<Comparison>& comparison = comparisons_[plan_.pair(i, j)];
    for (std::size_t k = i + 1; plan_.transitive && k < j; ++k) {
        if (outcome.verdict == Verdict::wins) break;
        const Outcome first = wins(i, k);
        if (first.verdict == Verdict::loses) continue;
        outcome = either(outcome, both(first, wins(k, j)));
        if (outcome.verdict == Verdict::wins) comparison->through = static_cast<std::uint8_t>(k);
    }
    outcome.revision = at_.revision();
    outcomes_[plan_.pair(i, j)] = outcome;
    comparison->won = outcome.verdict == Verdict::wins;
    const bool certain = direct.verdict != Verdict::unsure && outcome.verdict != Verdict::unsure;
    if (!certain) comparison.reset();  // the decision does not rest on it, yet
    return outcome;
}

// The gap of (i, j) against its upper value, as far as the certificate of the estimate decides it.
Outcome StoppingTest::compare(std::size_t i, std::size_t j) {
    const std::size_t pair = plan_.pair(i, j);
    const auto [gain, response] = at_.gain(pair);
    const double gap = gap_per_gain(plan_.gap(i, j), gain);
    const double threshold = gain < 1.0 ? rule_.threshold(gap) : plan_.thresholds[pair];
    const Upper upper = rule_.upper(at_, i, j, threshold);
    const bool exact = at_.exact() || upper.high - upper.low <= 2.0 * kExact;
    Verdict verdict = certified(threshold, upper, exact);
    if (gap > 1.0) verdict = Verdict::wins;  // no probability exceeds 1 …
    if (gap <= rule_.least()) verdict = Verdict::loses;  // … or is below this
    comparisons_[pair] = {upper.estimate, upper.value, gain, response, std::nullopt, false};
    return {verdict, i, j, threshold - upper.value, at_.revision()};
}

void StoppingTest::compare_up_to(std::size_t stop) {
    for (std::size_t i = 0; i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) wins(i, j);
    }
}

}  // namespace stopwise
