//! Slices on hosts that change while they measure (method specification, "Slices"): coverage, false
//! findings, and a comparison with whole trials on the same hosts.

use super::*;
use weigh_model::{PieceStatistic, SliceMark, Slices};
use weigh_stats::slices::{common_rounds, costs};

/// Nominal length of a slice, seconds.
const SLICE: f64 = 0.005;
const ROUNDS: usize = 100;
const BLOCKS: usize = 10;
/// Work between two marks, in seconds of an undisturbed CPU: if the mean is reported, and if
/// another statistic of the pieces is.
const MARK: f64 = 0.025;
const PIECE: f64 = 0.010;
/// Average delay of the date of a mark, seconds.
const LATE: f64 = 0.000_1;
/// Time between two slices in which nobody works, seconds.
const GAP: f64 = 0.0001;

/// The average speed of the host between two moments, as a share of its best speed.
type Host<'h> = dyn FnMut(f64, f64) -> f64 + 'h;

/// An arm at work: its true cost, and its record.
struct Worker {
    cost: f64,
    piece: f64,
    thawed_s: f64,
    done: f64,
    marked: f64,
    slices: Slices,
}

impl Worker {
    fn new(cost: f64, statistic: PieceStatistic) -> Self {
        let piece = if statistic.is_mean() { MARK } else { PIECE };
        let slices = Slices { statistic, ..Slices::default() };
        Self { cost, piece, thawed_s: 0.0, done: 0.0, marked: 0.0, slices }
    }

    fn mark(&mut self, at_s: f64) {
        let amounts = match self.slices.marks.is_empty() {
            true => Default::default(),
            false => [("work".to_string(), self.marked)].into(),
        };
        self.slices.marks.push(SliceMark { at_us: (at_s * 1e6) as u64, amounts });
    }

    fn work(&mut self, random: &mut Random, seconds: f64, speed: f64) {
        let (begin, rate) = (self.thawed_s, speed / self.cost);
        let mut left = seconds * rate;
        // Marks come when enough work is done, also in the middle of slices.
        while self.done + left >= self.piece {
            left -= self.piece - self.done;
            self.done = 0.0;
            self.marked = self.piece;
            // No mark is dated later than the moment when the guest stands still.
            let late = LATE * random.exponential();
            self.mark((begin + seconds - left / rate + late).min(begin + seconds));
        }
        self.done += left;
        self.thawed_s += seconds;
        let us = (self.thawed_s * 1e6) as u64 - (begin * 1e6) as u64;
        self.slices.thawed_us.push(us as u32);
    }
}

/// The log ratio of a block in slices, and that of two whole trials of the same length, which
/// report means.
fn block(
    random: &mut Random,
    host: &mut Host,
    now: &mut f64,
    (truth, statistic): (f64, PieceStatistic),
) -> (f64, f64) {
    // The instances are launched.
    *now += 0.1 + random.uniform();
    let mut arms = [1.0, truth.exp()].map(|cost| Worker::new(cost, statistic));
    let mut first = 0;
    for round in 0..ROUNDS {
        // A random order, and its reverse in the next round; a random length.
        first = if round % 2 == 0 { usize::from(random.happens(0.5)) } else { 1 - first };
        let length = SLICE * (0.5 + random.uniform());
        for place in [first, 1 - first] {
            arms[place].work(random, length, host(*now, *now + length));
            *now += length + GAP;
        }
    }
    let [a, b] = [&arms[0].slices, &arms[1].slices];
    let rounds = common_rounds(&[a, b]).expect("both work from begin to end");
    let costs = costs(&[a, b], 0, rounds);
    let sliced = (costs[1]["work"] / costs[0]["work"]).ln();
    let length = ROUNDS as f64 * SLICE;
    let mut whole = || {
        let speed = host(*now, *now + length);
        *now += length + 0.05;
        speed
    };
    let (one, other) = (whole(), whole());
    let back_to_back =
        if random.happens(0.5) { truth + (one / other).ln() } else { truth + (other / one).ln() };
    (sliced, back_to_back)
}

/// How often the interval misses the truth, without an effect and at 2 %, and how much narrower it
/// is than that of whole trials.
///
/// Both statistics have the same limits. Returns the gains of the mean and of the median.
fn judge(what: &str, seed: u64, make: impl Fn(&mut Random) -> Box<Host<'static>> + Sync) -> [f64; 2] {
    PieceStatistic::ALL.map(|statistic| judge_statistic(what, seed, statistic, &make))
}

fn judge_statistic(
    what: &str,
    seed: u64,
    statistic: PieceStatistic,
    make: &(impl Fn(&mut Random) -> Box<Host<'static>> + Sync),
) -> f64 {
    let what = &format!("{what}, {}", statistic.as_str());
    let truth = 0.02f64.ln_1p();
    let narrower = std::sync::Mutex::new((0.0, 0.0));
    let [same, different, whole] = rates_of([4_000, COSTLY], seed, |random| {
        let mut run = |truth| -> (Vec<f64>, Vec<f64>) {
            let (mut host, mut now) = (make(random), 0.0);
            (0..BLOCKS).map(|_| block(random, &mut *host, &mut now, (truth, statistic))).unzip()
        };
        let (null, null_whole) = run(0.0);
        let (effect, _) = run(truth);
        let interval = |logs: Vec<f64>| described(with_logs(&[logs])).overhead;
        let (sliced, back_to_back) = (interval(null), interval(null_whole));
        let width = |interval: Option<Interval>| interval.map_or(0.0, |i| i.high - i.low);
        let mut sums = narrower.lock().expect("no experiment panics");
        sums.0 += width(sliced);
        sums.1 += width(back_to_back);
        [!holds(sliced, 0.0), !holds(interval(effect), truth), !holds(back_to_back, 0.0)]
    });
    let sums = narrower.into_inner().expect("no experiment panics");
    let gain = sums.1 / sums.0;
    tell(&format!("{what}: whole trials miss the truth in {whole:.4}; slices are {gain:.1} times narrower"));
    for (name, rate) in [("false findings in slices", same), ("intervals in slices that miss 2 %", different)]
    {
        // If a few blocks hold most of the spread, the t interval is too wide, not too narrow.
        at_least(&format!("{what}: {name}"), rate, if statistic.is_mean() { 0.043 } else { 0.027 });
        at_most(&format!("{what}: {name}"), rate, 0.053);
    }
    gain
}

#[test]
fn slices_hold_their_level_under_white_noise() {
    judge("white", 201, |random| {
        let mut random = Random::new((random.uniform() * 1e9) as u64);
        Box::new(move |begin, end| (-0.05 * (SLICE / (end - begin)).sqrt() * random.normal()).exp())
    });
}

/// A sum of autoregressive processes with time constants of 4 ms to 16 s: 1/f over four decades.
#[test]
fn slices_hold_their_level_under_pink_noise_and_are_narrow() {
    let [gain, _] = judge("1/f", 202, |random| {
        let mut random = Random::new((random.uniform() * 1e9) as u64);
        let mut at = 0.0;
        let mut states = [0.0f64; 7].map(|_| random.normal());
        Box::new(move |begin, end| {
            let middle = (begin + end) / 2.0;
            for (state, power) in states.iter_mut().zip(0..) {
                let keep = (-(middle - at) / (0.004 * 4.0f64.powi(power))).exp();
                *state = keep * *state + (1.0 - keep * keep).sqrt() * random.normal();
            }
            at = middle;
            (-0.03 * states.iter().sum::<f64>()).exp()
        })
    });
    assert!(gain > 1.5, "{gain}");
}

/// The share of a stretch of time that lies in bursts. `lasting` is their mean length, and `apart`
/// the mean time between them, both in seconds.
fn in_bursts(mut random: Random, lasting: f64, apart: f64) -> impl FnMut(f64, f64) -> f64 {
    let (mut begins, mut ends) = (0.0, 0.0);
    move |begin, end| {
        let mut within = 0.0;
        loop {
            while ends <= begin {
                begins = ends + apart * random.exponential();
                ends = begins + lasting * random.exponential();
            }
            within += (ends.min(end) - begins.max(begin)).max(0.0);
            if ends >= end {
                return within / (end - begin);
            }
            begins = ends + apart * random.exponential();
            ends = begins + lasting * random.exponential();
        }
    }
}

/// Another process takes the CPU for 30 ms on average, a tenth of the time.
#[test]
fn slices_hold_their_level_under_bursts_and_are_narrow() {
    let [gain, of_median] = judge("bursts", 203, |random| {
        let mut taken = in_bursts(Random::new((random.uniform() * 1e9) as u64), 0.03, 0.27);
        Box::new(move |begin, end| (1.0 - taken(begin, end)).max(1e-3))
    });
    assert!(gain > 1.2 && of_median > 2.0 * gain, "{gain} {of_median}");
}

/// The other thread of the core is busy for .3 s on average, a third of the time, which halves the
/// speed.
#[test]
fn slices_hold_their_level_beside_a_busy_thread_and_are_narrow() {
    let gains = judge("a busy thread", 209, |random| {
        let mut shared = in_bursts(Random::new((random.uniform() * 1e9) as u64), 0.3, 0.6);
        let mut random = Random::new((random.uniform() * 1e9) as u64);
        Box::new(move |begin, end| (1.0 - 0.5 * shared(begin, end)) * (0.02 * random.normal()).exp())
    });
    assert!(gains.iter().all(|gain| *gain > 5.0), "{gains:?}");
}

#[test]
fn slices_hold_their_level_under_a_drift() {
    let [gain, _] = judge("drift", 204, |random| {
        let mut random = Random::new((random.uniform() * 1e9) as u64);
        let slope = 0.01 * random.normal();
        Box::new(move |begin, end| (-slope * (begin + end) / 2.0 - 0.01 * random.normal()).exp())
    });
    assert!(gain > 1.0, "{gain}");
}

/// A disturbance whose period is one, two (a round), 2.1 or four slices.
#[test]
fn slices_hold_their_level_under_periods_near_their_own() {
    for (seed, period) in [(205, SLICE), (206, 2.0 * SLICE), (207, 2.1 * SLICE), (208, 4.0 * SLICE)] {
        let what = format!("a period of {:.1} ms", period * 1e3);
        judge_statistic(&what, seed, PieceStatistic::Mean, &|random: &mut Random| -> Box<Host<'static>> {
            let mut random = Random::new((random.uniform() * 1e9) as u64);
            let phase = TAU * random.uniform();
            Box::new(move |begin, end| {
                let wave = |at: f64| (TAU * at / period + phase).cos();
                let mean = (wave(begin) - wave(end)) * period / (TAU * (end - begin));
                (-0.2 * mean - 0.005 * random.normal()).exp()
            })
        });
    }
}
