// One payment in one transaction, from node-postgres.
// prints: 201 {"payment":"1"}; 201 {"payment":"1"}; 422 undefined
const { Pool } = require('pg')
const pool = new Pool()

async function pay (account, key, request) {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    // JSON.stringify: node-postgres would send a JavaScript array as a PostgreSQL array
    const { rows: [claim] } = await client.query(
      "SELECT outcome, status, result, retry_after FROM idem_claim($1, 'pay', $2, request => $3, wait => '2 seconds')",
      [account, key, JSON.stringify(request)])
    if (claim.outcome === 'claimed' || claim.outcome === 'recovered') {
      const { rows: [payment] } = await client.query(
        'INSERT INTO payments (account, amount) VALUES ($1, $2) RETURNING id', [account, request.amount])
      claim.status = 201
      claim.result = { payment: payment.id } // bigint comes as a string
      await client.query("SELECT idem_complete($1, 'pay', $2, result => $3, status => $4)",
        [account, key, JSON.stringify(claim.result), claim.status])
    }
    await client.query('COMMIT')
    return claim
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  } finally {
    client.release()
  }
}

function status (claim) {
  switch (claim.outcome) {
    case 'in_progress': return 409 // with the header Retry-After: claim.retry_after
    case 'mismatch': return 422
    case 'expired': return 410
    case 'review': return 409
    default: return claim.status
  }
}

async function main () {
  for (const [key, amount] of [['k1', 10], ['k1', 10], ['k1', 11]]) {
    const claim = await pay('acme', key, { amount })
    console.log(status(claim), JSON.stringify(claim.result ?? undefined))
  }
  await pool.end()
}

main()
