//! Serialisation of the comparison of two overheads: the grade that is HOLDS for a claim is AGREES
//! for two overheads.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weigh_stats::Grade;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE", tag = "grade")]
enum Agreement {
    #[serde(alias = "HOLDS")]
    Agrees,
    Differs,
    Undecided {
        blocks: Option<u32>,
    },
}

pub(super) fn serialize<S: Serializer>(grade: &Option<Grade>, serializer: S) -> Result<S::Ok, S::Error> {
    let agreement = grade.map(|grade| match grade {
        Grade::Holds => Agreement::Agrees,
        Grade::Differs => Agreement::Differs,
        Grade::Undecided { blocks } => Agreement::Undecided { blocks },
    });
    agreement.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Grade>, D::Error> {
    let agreement = Option::<Agreement>::deserialize(deserializer)?;
    Ok(agreement.map(|agreement| match agreement {
        Agreement::Agrees => Grade::Holds,
        Agreement::Differs => Grade::Differs,
        Agreement::Undecided { blocks } => Grade::Undecided { blocks },
    }))
}
