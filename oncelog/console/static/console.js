// Draws a group's lag over time, from the value that each renewal of the page brings.
"use strict";
(() => {
  const MOST = 720; // an hour
  const place = document.getElementById("lag-chart");
  const times = [], lags = [];
  const colour = () => getComputedStyle(place).color;
  const axis = () => ({ stroke: colour(), grid: { stroke: "rgba(128, 128, 128, 0.25)" } });
  const chart = new uPlot(
    {
      width: Math.min(900, place.clientWidth || 900),
      height: 220,
      axes: [axis(), { ...axis(), size: 80 }],
      scales: { x: { range: (u, low, high) => [low, Math.max(high, low + 60)] }, y: { range: (u, low, high) => [0, Math.max(1, high)] } },
      series: [{}, { label: "lag", stroke: colour(), points: { show: true } }],
    },
    [times, lags],
    place,
  );
  const read = () => {
    const value = document.getElementById("lag");
    if (!value) return;
    times.push(Date.now() / 1000);
    lags.push(Number(value.value));
    if (times.length > MOST) { times.shift(); lags.shift(); }
    chart.setData([times, lags]);
  };
  read();
  new MutationObserver((changes) => {
    const renewed = changes.some((change) => [...change.addedNodes].some((node) => node.id === "live"));
    if (renewed) read();
  }).observe(document.getElementById("main"), { childList: true });
})();
