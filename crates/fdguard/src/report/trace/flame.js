(function () {
  "use strict";
  document.querySelectorAll("svg.flame").forEach(function (graph) {
    var frames = Array.prototype.map.call(graph.querySelectorAll("svg.f"), function (frame) {
      return {
        frame: frame, x: parseFloat(frame.getAttribute("x")), y: parseFloat(frame.getAttribute("y")),
        w: parseFloat(frame.getAttribute("width"))
      };
    });
    function zoom(to) {
      var slack = 1e-3;
      frames.forEach(function (one) {
        var holds = one.x <= to.x + slack && one.x + one.w >= to.x + to.w - slack && one.y < to.y;
        var within = one.x >= to.x - slack && one.x + one.w <= to.x + to.w + slack && one.y >= to.y;
        var width = holds ? 100 : 100 * one.w / to.w;
        one.frame.style.display = holds || within ? "" : "none";
        one.frame.classList.toggle("faded", holds);
        one.frame.classList.toggle("tiny", width < 2);
        one.frame.setAttribute("x", (holds ? 0 : 100 * (one.x - to.x) / to.w) + "%");
        one.frame.setAttribute("width", width + "%");
      });
    }
    frames.forEach(function (one) {
      one.frame.addEventListener("click", function () { zoom(one); });
    });
  });
})();
