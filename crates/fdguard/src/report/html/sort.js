document.querySelectorAll("table.sites").forEach(function (table) {
  "use strict";
  var body = table.tBodies[0];
  table.querySelectorAll("th").forEach(function (head, column) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.appendChild(button);
    button.addEventListener("click", function () {
      var isNumber = head.classList.contains("n");
      var before = head.getAttribute("aria-sort");
      // The first click puts the largest number, or the first word, on top.
      var down = before ? before === "ascending" : isNumber;
      function value(row) {
        var cell = row.cells[column];
        var text = cell.hasAttribute("data-v") ? cell.getAttribute("data-v") : cell.textContent;
        return isNumber ? parseFloat(text) : text;
      }
      Array.prototype.slice.call(body.rows).sort(function (a, b) {
        var x = value(a), y = value(b);
        var order = isNumber ? x - y : x.localeCompare(y);
        return down ? -order : order;
      }).forEach(function (row) { body.appendChild(row); });
      table.querySelectorAll("th").forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
});
