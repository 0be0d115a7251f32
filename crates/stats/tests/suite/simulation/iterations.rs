//! Several iterations in a block.

use super::*;
use weigh_model::Observation;

/// Environments with equal medians are equal, however differently their iterations scatter and
/// however many they have.
#[test]
fn scatter_of_iterations_is_no_effect() {
    for iterations in [1, 2, 3, 4] {
        let [different, slower] = rates(2_000, 8_500 + iterations, |random| {
            let mut side = |sd: f64| -> Vec<Observation> {
                let block = |block: u32, random: &mut Random| {
                    let values = random.normals(iterations as usize, 0.0, sd);
                    values.into_iter().map(move |z| Observation { block: Some(block), value: z.exp() })
                };
                (0..30).flat_map(|number| block(number, random).collect::<Vec<_>>()).collect()
            };
            let (steady, scattered) = (side(0.01), side(0.04));
            let cell = cell_of(comparison(vec![series("native", steady), series("e", scattered)]));
            [is_different(&cell), cell.overhead.is_some_and(|overhead| overhead.estimate > 0.0)]
        });
        near(&format!("{iterations} iterations, called different"), different, 0.05, 0.001);
        near(&format!("{iterations} iterations, estimate above nothing"), slower, 0.5, 0.0);
    }
}
