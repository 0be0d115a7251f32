//! The figures, one function each. The last line of each states the seed and the program that made
//! it.

use crate::simulate::{Pairs, Random, cell, cell_of_ratios, cell_within, exactly};
use crate::style::{
    Area, BLUE, Failed, GREEN, GRID, INK, MUTED, ORANGE, entry, heading, line, picture, text,
};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use weigh_stats::{Flag, Interval, Verdict};

/// The seed of all figures.
const SEED: u64 = 7;

const WIDTH: u32 = 760;

/// A file's name and its content.
pub type Picture = (&'static str, String);

/// Returns all figures.
pub fn all() -> Result<Vec<Picture>, Failed> {
    Ok(vec![
        ("drift.svg", drift()?),
        ("coverage.svg", coverage()?),
        ("verdicts.svg", verdicts()?),
        ("mixed.svg", mixed()?),
        ("blocks.svg", blocks()?),
        ("power.svg", power()?),
    ])
}

/// Writes where the numbers come from.
fn source(area: &Area<'_>, what: &str, y: i32) -> Result<(), Failed> {
    let words = format!("{what}; seed {SEED}; analysed by weigh_stats; weigh-bench, figures");
    let style = ("sans-serif", 11).into_font().color(&MUTED);
    area.draw_text(&words, &style, (20, y))?;
    Ok(())
}

/// A horizontal scale from pixel `left` to `right`.
#[derive(Clone, Copy)]
struct Scale {
    left: i32,
    right: i32,
    low: f64,
    high: f64,
}

impl Scale {
    fn at(self, value: f64) -> i32 {
        let share = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    /// Draws the scale's marks and their labels, in per cent.
    fn draw(self, area: &Area<'_>, marks: &[f64], (top, bottom): (i32, i32)) -> Result<(), Failed> {
        for mark in marks {
            let colour = if *mark == 0.0 { &MUTED } else { &GRID };
            line(area, (self.at(*mark), top), (self.at(*mark), bottom), colour, 1)?;
            let words = if *mark == 0.0 { "0".into() } else { format!("{:+} %", mark * 100.0) };
            area.draw_text(&words, &text(&MUTED, HPos::Center), (self.at(*mark), bottom + 14))?;
        }
        Ok(())
    }

    fn interval(self, area: &Area<'_>, interval: Interval, y: i32, colour: &RGBColor) -> Result<(), Failed> {
        line(area, (self.at(interval.low), y), (self.at(interval.high), y), colour, 4)?;
        area.draw(&Circle::new((self.at(interval.estimate), y), 7, colour.filled()))?;
        Ok(())
    }
}

/// A drifting host, measured in two orders.
fn drift() -> Result<String, Failed> {
    const TRIALS: usize = 60;
    let mut random = Random::new(SEED);
    let (mut in_sequence, mut in_blocks) = (0, 0);
    for _ in 0..RUNS {
        let costs = costs(&mut random, TRIALS);
        in_sequence += u32::from(is_different(&costs[..TRIALS / 2], &costs[TRIALS / 2..], Pairs::None));
        let (first, second) = interleaved(&costs, &mut random);
        let pick = |places: &[usize]| -> Vec<f64> { places.iter().map(|place| costs[*place]).collect() };
        in_blocks += u32::from(is_different(&pick(&first), &pick(&second), Pairs::Blocks));
    }
    let costs = costs(&mut random, TRIALS);
    let (first, second) = interleaved(&costs, &mut random);
    let percent = |count: u32| {
        format!(
            "{:.1} % of {RUNS} such runs find a difference that is not there",
            f64::from(count) * 100.0 / f64::from(RUNS)
        )
    };
    picture((WIDTH, 500), |area| {
        let (before, after): (Vec<usize>, Vec<usize>) = (0..TRIALS).partition(|place| *place < TRIALS / 2);
        heading(area, &format!("All of A, then all of B: {}", percent(in_sequence)), (20, 22))?;
        timeline(area, 40, &costs, [&before, &after])?;
        heading(area, &format!("Blocks in random order: {}", percent(in_blocks)), (20, 250))?;
        timeline(area, 268, &costs, [&first, &second])?;
        source(area, "A and B are the same; AR(.9) drift of 3 %, noise of .5 %; lines are means", 482)
    })
}

const RUNS: u32 = 2000;

/// Log costs over time: drift and noise.
fn costs(random: &mut Random, trials: usize) -> Vec<f64> {
    let drift = random.drift(0.9, trials);
    drift.iter().map(|level| 0.03 * level + 0.005 * random.normal()).collect()
}

/// The trials of each environment if each runs once in every block of two, in random order.
fn interleaved(costs: &[f64], random: &mut Random) -> (Vec<usize>, Vec<usize>) {
    (0..costs.len() / 2)
        .map(
            |block| {
                if random.uniform() < 0.5 { (2 * block, 2 * block + 1) } else { (2 * block + 1, 2 * block) }
            },
        )
        .unzip()
}

fn is_different(first: &[f64], second: &[f64], pairs: Pairs) -> bool {
    cell(first, second, pairs).p_diff.is_some_and(|p| p < 0.05)
}

/// The trials over time, and the mean of each environment.
fn timeline(area: &Area<'_>, top: i32, costs: &[f64], places: [&Vec<usize>; 2]) -> Result<(), Failed> {
    let (bottom, left, right) = (top + 160, 70, 640);
    let y = |cost: f64| bottom - 10 - ((cost + 0.075) / 0.15 * 145.0).round() as i32;
    let x = |place: usize| left + 10 + (place as i32) * (right - left - 20) / (costs.len() as i32 - 1);
    for mark in [-0.05, 0.0, 0.05] {
        line(area, (left, y(mark)), (right, y(mark)), &GRID, 1)?;
        let words = if mark == 0.0 { "100 %".to_string() } else { format!("{:.0} %", 100.0 * (1.0 + mark)) };
        area.draw_text(&words, &text(&MUTED, HPos::Right), (left - 8, y(mark)))?;
    }
    for ((places, colour), name) in places.into_iter().zip([&BLUE, &ORANGE]).zip(["A", "B"]) {
        for place in places {
            area.draw(&Circle::new((x(*place), y(costs[*place])), 4, colour.filled()))?;
        }
        let mean = places.iter().map(|place| costs[*place]).sum::<f64>() / places.len() as f64;
        let (from, to) =
            (places.iter().min().map_or(left, |p| x(*p)), places.iter().max().map_or(right, |p| x(*p)));
        line(area, (from, y(mean)), (to, y(mean)), colour, 2)?;
        let offset = if name == "A" { 60 } else { 85 };
        entry(area, name, colour, (right + 25, top + offset))?;
    }
    area.draw_text("time", &text(&MUTED, HPos::Right), (right, bottom + 8))?;
    Ok(())
}

/// Coverage of a 95 % interval when blocks are the samples, and when iterations are.
fn coverage() -> Result<String, Failed> {
    const ITERATIONS: usize = 10;
    let mut random = Random::new(SEED);
    let mut rows = Vec::new();
    for k in [6, 10, 15, 30] {
        let (mut by_blocks, mut by_iterations) = (0, 0);
        for _ in 0..RUNS {
            // Every instance has its own level, which its iterations share.
            let pairs: Vec<f64> = (0..k).map(|_| 0.02 * random.normal()).collect();
            // The first iteration of every instance, then the second of every one. As neighbours,
            // the iterations of an instance would be found to be correlated.
            let iterations: Vec<f64> = (0..ITERATIONS)
                .flat_map(|_| pairs.clone())
                .map(|level| level + 0.01 * random.normal())
                .collect();
            let mean = |instance: usize| {
                iterations.iter().skip(instance).step_by(k).sum::<f64>() / ITERATIONS as f64
            };
            let means: Vec<f64> = (0..k).map(mean).collect();
            by_blocks += u32::from(holds_zero(&means));
            by_iterations += u32::from(holds_zero(&iterations));
        }
        rows.push((k, f64::from(by_blocks) / f64::from(RUNS), f64::from(by_iterations) / f64::from(RUNS)));
    }
    picture((WIDTH, 330), |area| {
        heading(area, "How often a 95 % interval holds the truth", (20, 22))?;
        let scale = Scale { left: 130, right: 640, low: 0.0, high: 1.0 };
        for mark in [0.0, 0.2, 0.4, 0.6, 0.8, 0.95] {
            let colour = if mark == 0.95 { &GREEN } else { &GRID };
            line(
                area,
                (scale.at(mark), 42),
                (scale.at(mark), 250),
                colour,
                if mark == 0.95 { 2 } else { 1 },
            )?;
            area.draw_text(
                &format!("{:.0} %", mark * 100.0),
                &text(&MUTED, HPos::Center),
                (scale.at(mark), 264),
            )?;
        }
        for (row, (k, by_blocks, by_iterations)) in (0..).zip(&rows) {
            let y = 65 + row * 52;
            area.draw_text(&format!("{k} blocks"), &text(&INK, HPos::Right), (115, y + 8))?;
            for (offset, share, colour) in [(0, by_blocks, &BLUE), (17, by_iterations, &ORANGE)] {
                line(area, (scale.left, y + offset), (scale.at(*share), y + offset), colour, 9)?;
                let words = format!("{:.1} %", share * 100.0);
                area.draw_text(&words, &text(&INK, HPos::Left), (scale.at(*share) + 8, y + offset))?;
            }
        }
        entry(area, "one number per block", &BLUE, (140, 290))?;
        entry(area, "ten iterations per block, taken for samples", &ORANGE, (330, 290))?;
        source(area, &format!("{RUNS} runs each; instances differ by 2 %, their iterations by 1 %"), 312)
    })
}

fn holds_zero(ratios: &[f64]) -> bool {
    cell_of_ratios(ratios).overhead.is_some_and(|interval| interval.low <= 0.0 && interval.high >= 0.0)
}

/// A made-up result for each verdict.
fn verdicts() -> Result<String, Failed> {
    let mut random = Random::new(SEED);
    let cases = [
        (Verdict::Slower, 0.052, 0.02),
        (Verdict::Faster, -0.041, 0.015),
        (Verdict::Equivalent, 0.001, 0.012),
        (Verdict::DetectableBelowMargin, 0.009, 0.01),
        (Verdict::Inconclusive, 0.012, 0.055),
    ];
    picture((WIDTH, 380), |area| {
        heading(
            area,
            "The interval decides: where it lies against zero and against the margin of 2 %",
            (20, 22),
        )?;
        let scale = Scale { left: 285, right: 720, low: -0.07, high: 0.07 };
        let margin = [(scale.at(-0.02), 45), (scale.at(0.02), 295)];
        area.draw(&Rectangle::new(margin, GREEN.mix(0.15).filled()))?;
        scale.draw(area, &[-0.06, -0.04, -0.02, 0.0, 0.02, 0.04, 0.06], (45, 295))?;
        for (row, (verdict, mean, sd)) in (0..).zip(cases) {
            let cell = cell_of_ratios(&exactly(mean, sd, 30, &mut random));
            // Checks that the statistics reach the verdict that the figure shows.
            if cell.verdict != Some(verdict) {
                return Err(format!("{verdict} is drawn where {:?} stands", cell.verdict).into());
            }
            let (y, overhead) = (70 + row * 50, cell.overhead.ok_or("no interval")?);
            area.draw_text(&verdict.to_string(), &text(&INK, HPos::Left), (20, y - 8))?;
            area.draw_text(
                &in_words(verdict, cell.blocks_to_decide),
                &text(&MUTED, HPos::Left),
                (20, y + 10),
            )?;
            let colour = match verdict {
                Verdict::Equivalent | Verdict::DetectableBelowMargin => &GREEN,
                Verdict::Inconclusive => &MUTED,
                _ => &BLUE,
            };
            scale.interval(area, overhead, y, colour)?;
        }
        area.draw_text("faster than the baseline", &text(&MUTED, HPos::Left), (scale.left, 334))?;
        area.draw_text("slower", &text(&MUTED, HPos::Right), (scale.right, 334))?;
        source(area, "30 blocks each; 95 % intervals of the average effect; band: the margin", 362)
    })
}

fn in_words(verdict: Verdict, blocks: Option<u32>) -> String {
    match verdict {
        Verdict::Slower => "wholly above zero".into(),
        Verdict::Faster => "wholly below zero".into(),
        Verdict::Equivalent => "holds zero, within the margin".into(),
        Verdict::DetectableBelowMargin => "above zero, within the margin".into(),
        _ => blocks.map_or("too wide to tell".into(), |blocks| format!("too wide; {blocks} blocks may tell")),
    }
}

/// Two modes, for which the average and the typical block differ.
fn mixed() -> Result<String, Failed> {
    let mut random = Random::new(SEED);
    let ratios: Vec<f64> =
        (0..40).map(|block| if block % 7 == 3 { 0.30 } else { -0.015 } + 0.008 * random.normal()).collect();
    let cell = cell_of_ratios(&ratios);
    if !cell.flags.contains(&Flag::Mixed) {
        return Err("the picture of MIXED is not mixed".into());
    }
    let (average, typical) = (cell.overhead.ok_or("no average")?, cell.typical.ok_or("no typical")?);
    picture((WIDTH, 330), |area| {
        heading(area, "MIXED: most blocks are a little faster, some are much slower", (20, 22))?;
        let scale = Scale { left: 110, right: 720, low: -0.05, high: 0.36 };
        scale.draw(area, &[-0.05, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35], (45, 245))?;
        for (block, ratio) in (0..).zip(&ratios) {
            // Each block gets its own line, so that none hides another.
            area.draw(&Circle::new((scale.at(ratio.exp_m1()), 55 + block * 3), 3, BLUE.mix(0.7).filled()))?;
        }
        area.draw_text("blocks", &text(&INK, HPos::Right), (95, 110))?;
        area.draw_text("average", &text(&INK, HPos::Right), (95, 195))?;
        scale.interval(area, average, 195, &ORANGE)?;
        area.draw_text("typical", &text(&INK, HPos::Right), (95, 225))?;
        scale.interval(area, typical, 225, &GREEN)?;
        area.draw_text(
            "effect on the cost of one operation",
            &text(&MUTED, HPos::Center),
            (scale.at(0.155), 284),
        )?;
        source(area, "40 blocks, 6 of them in a slow mode; 95 % intervals", 312)
    })
}

/// The number of blocks that a verdict takes, by how much the blocks differ.
fn blocks() -> Result<String, Failed> {
    let mut random = Random::new(SEED);
    let curves = [
        (0.01, &ORANGE, "a margin of 1 %"),
        (0.02, &GREEN, "a margin of 2 %"),
        (0.05, &BLUE, "a margin of 5 %"),
    ];
    picture((WIDTH, 400), |area| {
        heading(area, "Blocks that would likely decide, by the spread of the blocks", (20, 22))?;
        let (chart, foot) = area.split_vertically(350);
        let mut chart = ChartBuilder::on(&chart)
            .margin_top(45)
            .margin_right(30)
            .x_label_area_size(42)
            .y_label_area_size(65)
            .build_cartesian_2d(0.0..10.0f64, (7.0..1000.0f64).log_scale())?;
        axes(&mut chart, "standard deviation of the ratios of blocks (%)", "blocks (logarithmic)")?;
        for (place, (margin, colour, name)) in (0..).zip(curves) {
            let mut points = Vec::new();
            for tenth in 2..=100 {
                let ratios = exactly(0.0, f64::from(tenth) / 1000.0, 6, &mut random);
                if let Some(blocks) = cell_within(margin, &[0.0; 6], &ratios, Pairs::Blocks).blocks_to_decide
                {
                    points.push((f64::from(tenth) / 10.0, f64::from(blocks)));
                }
            }
            chart.draw_series(LineSeries::new(points, colour.stroke_width(3)))?;
            entry(area, name, colour, (95, 75 + place * 22))?;
        }
        source(&foot, "from quick runs of 6 blocks that are INCONCLUSIVE, by the product's own formula", 20)
    })
}

/// Power by effect.
fn power() -> Result<String, Failed> {
    const SD: f64 = 0.02;
    let mut random = Random::new(SEED);
    picture((WIDTH, 400), |area| {
        heading(area, "The chance to find an effect, when the blocks differ by 2 %", (20, 22))?;
        let (chart, foot) = area.split_vertically(350);
        let mut chart = ChartBuilder::on(&chart)
            .margin_top(45)
            .margin_right(30)
            .x_label_area_size(42)
            .y_label_area_size(65)
            .build_cartesian_2d(0.0..5.0f64, 0.0..100.0f64)?;
        axes(&mut chart, "true effect (%)", "found (%)")?;
        let eighty = vec![(0.0, 80.0), (5.0, 80.0)];
        chart.draw_series(LineSeries::new(eighty, MUTED.stroke_width(1)))?;
        for (place, (k, colour)) in (0..).zip([(60usize, &GREEN), (30, &BLUE), (10, &ORANGE), (6, &INK)]) {
            let smallest =
                cell_of_ratios(&exactly(0.0, SD, k, &mut random)).smallest_detectable.ok_or("no spread")?;
            let predicted = (0..=100).map(|i| {
                let effect = f64::from(i) * 0.0005;
                (effect * 100.0, 100.0 * weigh_stats::power(effect, smallest, (k - 1) as f64))
            });
            chart.draw_series(LineSeries::new(predicted, colour.stroke_width(3)))?;
            let simulated: Vec<(f64, f64)> = (1..=9)
                .map(|i| {
                    let effect = f64::from(i) * 0.005;
                    let found = (0..500).filter(|_| {
                        let ratios: Vec<f64> =
                            (0..k).map(|_| effect.ln_1p() + SD * random.normal()).collect();
                        cell_of_ratios(&ratios).p_diff.is_some_and(|p| p < 0.05)
                    });
                    (effect * 100.0, found.count() as f64 / 5.0)
                })
                .collect();
            chart.draw_series(simulated.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
            entry(
                area,
                &format!("{k} blocks, smallest effect {:.1} %", smallest * 100.0),
                colour,
                (500, 225 + place * 22),
            )?;
        }
        source(
            &foot,
            "lines: promised by the printed smallest effect; dots: found in 500 simulated runs each",
            20,
        )
    })
}

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

/// Draws axes with thin lines and text of one size.
fn axes<X, Y>(chart: &mut Chart<'_, '_, X, Y>, x: &str, y: &str) -> Result<(), Failed>
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(1))
        .axis_style(MUTED.stroke_width(1))
        .label_style(text(&MUTED, HPos::Center).pos(plotters::style::text_anchor::Pos::default()))
        .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
        .x_label_formatter(&|value| format!("{}", (value * 10.0).round() / 10.0))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .x_desc(x)
        .y_desc(y)
        .draw()?;
    Ok(())
}
