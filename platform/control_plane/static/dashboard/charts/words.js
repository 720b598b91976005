// Amounts and moments as axes have them: short, as figures.py shortens.
const STEPS = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];
const NANOS = 1e9;
const DAY_SECONDS = 86400;
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const ownDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const ownHour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const ownMoment = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });

export function shortNumber(amount) {
  for (const [size, suffix] of STEPS) {
    if (Math.abs(amount) >= size) return `${digits(amount / size)} ${suffix}`;
  }
  return digits(amount);
}

export function axisText(amount, unit) {
  if (unit === "$") {
    const dollars = amount / NANOS;
    return Math.abs(dollars) >= 1000 ? `$${shortNumber(dollars)}` : `$${digits(dollars)}`;
  }
  return unit === "%" ? `${digits(amount)} %` : shortNumber(amount);
}

// A split of the axis: the day, or within days the hour, with the day where it begins.
export function splitText(second, step, isHourly) {
  const moment = new Date(second * 1000);
  if (!isHourly) return second % DAY_SECONDS ? "" : day.format(moment);
  const isMidnight = moment.getHours() === 0 && moment.getMinutes() === 0;
  return step >= DAY_SECONDS || isMidnight ? ownDay.format(moment) : ownHour.format(moment);
}

export function hourText(moment) {
  return ownMoment.format(moment);
}

function digits(number) {
  return String(Number(number.toPrecision(3)));
}
