//! The exchanges behind a clock check: when they are made, and with whom.

use crate::clock::{self, AwakePeriod, CommandTimes, Exchange, ExchangeSeries};
use std::time::{Duration, Instant};
use weigh_model::ClockCheck;
use weigh_platforms::{Session, SessionError};

/// Exchanges at each end of the time in which a guest is awake (method specification, "Clocks").
const EXCHANGES: usize = 100;
/// Time limit of the exchanges at one end. A slow channel gets fewer exchanges; its bound is wide
/// anyway, and remains valid.
const LONGEST: Duration = Duration::from_millis(500);
/// Exchanges with a guest that reads the host's clock: they only measure the round trip.
const FEW: usize = 3;

/// Whose clock a guest reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestClock {
    /// The host's clock.
    Shared,
    /// Its own clock.
    Own,
    /// The host's clock, because nothing in the guest reports a time: its durations are taken here.
    HostTimed,
    /// Not checked: the durations are a fake's, or are checked by other means.
    Unchecked,
}

impl GuestClock {
    /// Identifies the clock of a guest that has just been launched. It is the host's if the guest
    /// runs on the same boot of the same kernel and its reading lies within an exchange's bracket.
    /// A time namespace, or a kernel that only passes on the host's identity, fails this.
    pub(crate) fn identify(
        session: &mut Session,
        timed: bool,
        host_boot: &str,
    ) -> Result<Self, SessionError> {
        if !timed {
            return Ok(Self::Unchecked);
        }
        let boot = match session.facts(&[], &[]) {
            Ok(facts) => facts.boot,
            Err(SessionError::Refused { .. }) => None,
            Err(lost) => return Err(lost),
        };
        match exchange(session) {
            Ok(reading) if boot.as_deref() == Some(host_boot) && reading.is_within() => Ok(Self::Shared),
            Ok(_) => Ok(Self::Own),
            Err(SessionError::Refused { .. }) => Ok(Self::HostTimed),
            Err(lost) => Err(lost),
        }
    }

    /// The exchanges at one end; none if there is nothing to check.
    pub(crate) fn exchange(self, session: &mut Session) -> Result<Option<ExchangeSeries>, SessionError> {
        let wanted = match self {
            Self::Shared => FEW,
            Self::Own => EXCHANGES,
            Self::Unchecked | Self::HostTimed => return Ok(None),
        };
        let until = Instant::now() + LONGEST;
        let mut exchanges = Vec::with_capacity(wanted);
        while exchanges.len() < wanted && (exchanges.is_empty() || Instant::now() < until) {
            exchanges.push(exchange(session)?);
        }
        Ok(ExchangeSeries::of(&exchanges))
    }

    /// The check at the end of a trial. `start` is the result of [`GuestClock::exchange`] at its
    /// start. The guest is kept awake and idle for a while if its rate cannot be told otherwise.
    pub(crate) fn check(
        self,
        session: &mut Session,
        start: Option<ExchangeSeries>,
        runs: &[CommandTimes],
    ) -> Result<Option<ClockCheck>, SessionError> {
        if self == Self::HostTimed {
            return Ok(Some(clock::check_host_durations(runs)));
        }
        let (Some(start), Some(end)) = (start, self.exchange(session)?) else { return Ok(None) };
        let mut awake = AwakePeriod { start, end };
        if self == Self::Shared {
            return Ok(Some(clock::check_shared(awake, runs)));
        }
        let wait_ns = awake.wait_ns();
        if wait_ns > 0 {
            std::thread::sleep(Duration::from_nanos(wait_ns));
            if let Some(end) = self.exchange(session)? {
                awake.end = end;
            }
        }
        Ok(Some(clock::check_own(awake, runs)))
    }
}

fn exchange(session: &mut Session) -> Result<Exchange, SessionError> {
    let (reading, asked_ns, answered_ns) = session.clock()?;
    Ok(Exchange { asked_ns, guest_ns: reading.monotonic_ns, answered_ns })
}
