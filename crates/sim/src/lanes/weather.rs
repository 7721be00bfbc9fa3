//! How the receiver of each warehouse fares, and when that changes. Never ends an attempt: `receivers` does.

/// The state of a receiver at an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weather {
    Up,
    /// Takes it after so long.
    Slow(u64),
    /// Answers 500 at once.
    Broken,
    /// Answers 429 and asks for so many milliseconds.
    Busy(u64),
    /// Never answers.
    Silent,
    /// Takes it, but the answer is lost.
    Deaf,
    /// Fails every other time.
    Flaky,
    /// The transport fails, and not the receiver.
    Away,
    Gone,
    TooLarge,
}

/// How receivers fare in one world.
pub(super) struct Forecast {
    rng: fastrand::Rng,
    spans: Vec<Span>,
    hours: bool,
    healed: bool,
}

#[derive(Clone, Copy)]
struct Span {
    weather: Weather,
    until_ms: u64,
    /// Whether it only fails once days begin, for good.
    ends_badly: bool,
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

impl Forecast {
    pub(super) fn draw(warehouses: usize, mut rng: fastrand::Rng) -> Self {
        let span = |_| Span { weather: Weather::Up, until_ms: 0, ends_badly: rng.u8(0..3) == 0 };
        let spans = (0..warehouses).map(span).collect();
        Self { rng, spans, hours: false, healed: false }
    }

    pub(super) fn by_the_hour(&mut self) {
        self.hours = true;
        self.spans.iter_mut().for_each(|span| span.until_ms = 0);
    }

    pub(super) fn heal(&mut self) {
        self.healed = true;
    }

    /// How a warehouse's receiver fares at a time.
    pub(super) fn at(&mut self, warehouse: usize, now_ms: u64) -> Weather {
        let Span { weather, until_ms, ends_badly } = self.spans[warehouse];
        if self.hours && ends_badly {
            return [Weather::Broken, Weather::Silent][self.rng.usize(0..2)];
        }
        if self.healed {
            return Weather::Up;
        }
        if now_ms < until_ms {
            return weather;
        }
        let (wish_ms_max, rng) = (if self.hours { 3 * HOUR_MS } else { 12_000 }, &mut self.rng);
        let weather = match rng.u8(0..20) {
            0 => Weather::Slow(rng.u64(0..1_400)),
            1 | 2 => Weather::Broken,
            3 => Weather::Busy(rng.u64(0..wish_ms_max)),
            4 => Weather::Silent,
            5 => Weather::Deaf,
            6 => Weather::Flaky,
            7 => Weather::Gone,
            8 => Weather::TooLarge,
            9 => Weather::Away,
            10 => Weather::Slow(rng.u64(0..100)),
            _ => Weather::Up,
        };
        let long = rng.bool() && weather != Weather::TooLarge;
        let span_ms_max = match (self.hours, long) {
            (true, true) => 20 * HOUR_MS,
            (true, false) => 2 * MINUTE_MS,
            (false, true) => 20_000,
            (false, false) => 2_000,
        };
        self.spans[warehouse] = Span { weather, until_ms: now_ms + rng.u64(1..span_ms_max), ends_badly };
        weather
    }
}
